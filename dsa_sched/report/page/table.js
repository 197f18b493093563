(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const search = document.getElementById("search");
  const detail = document.getElementById("detail");
  const most = 500;
  const tabs = showTabs(data.figures, (_name, place) => {
    place.on("plotly_click", (event) => { if (event.points[0].customdata !== undefined) show(event.points[0].customdata); });
  });

  function show(number) {
    detail.replaceChildren();
    element("button", "close", detail).onclick = () => { detail.hidden = true; };
    element("h2", data.titles[number], detail);
    const table = document.createElement("table");
    data.columns.forEach((name, place) => {
      const text = data.rows[number][place];
      if (text === "") return;
      const row = document.createElement("tr");
      element("th", name, row);
      element("td", text, row);
      table.append(row);
    });
    detail.append(table);
    detail.hidden = false;
  }

  function list() {
    const wanted = search.value.trim().toLowerCase();
    const places = data.shown.map((name) => data.columns.indexOf(name));
    const body = document.querySelector("#rows tbody");
    const found = [...data.rows.keys()].filter((number) => data.rows[number].some((text) => text.toLowerCase().includes(wanted)));
    body.replaceChildren();
    for (const number of found.slice(0, most)) {
      const row = document.createElement("tr");
      for (const place of places) element("td", data.rows[number][place], row);
      row.onclick = () => show(number);
      body.append(row);
    }
    document.getElementById("count").textContent = found.length > most ? `${found.length} rows, the first ${most} shown` : `${found.length} rows`;
  }

  search.addEventListener("input", list);
  list();
  tabs.choose(data.first);
})();
