"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const layers = new Map(data.layers.map((layer) => [layer.name, layer]));
  const search = document.getElementById("search");
  const detail = document.getElementById("detail");
  const tabs = showTabs(data.figures, (name, place) => {
    place.on("plotly_click", (event) => show(event.points[0].customdata));
    if (name === "graph") mark();
  });

  function rows(title, facts) {
    const table = document.createElement("table");
    for (const [name, text] of Object.entries(facts)) {
      const row = document.createElement("tr");
      element("th", name, row);
      element("td", text, row);
      table.append(row);
    }
    element("h2", title, detail);
    detail.append(table);
  }

  // Charts make room for the panel, or take it back.
  function open(shown) {
    detail.hidden = !shown;
    dispatchEvent(new Event("resize"));
  }

  function instances(layer) {
    const told = layer.instances;
    if (!told.rows) return;
    element("h2", told.title, detail);
    const table = document.createElement("table");
    const heads = document.createElement("tr");
    for (const heading of told.headings) element("th", heading, heads);
    table.append(heads);
    for (const each of told.rows) {
      const row = document.createElement("tr");
      for (const text of each) element("td", text, row);
      table.append(row);
    }
    const wide = document.createElement("div");
    wide.className = "wide instances";
    wide.append(table);
    detail.append(wide);
    element("h2", told.cores, detail);
    element("pre", told.boxes.join("\n"), detail);
  }

  // A name is that of a layer, or of a group, which stands for its first layer.
  function show(name) {
    const layer = layers.get(name) || data.layers.find((each) => each.group === name);
    if (!layer) return;
    detail.replaceChildren();
    element("button", "close", detail).onclick = () => open(false);
    rows(layer.name, layer.facts);
    instances(layer);
    rows(`group ${layer.group}`, layer["group facts"]);
    const about = data.decisions.filter((each) => each.subject === layer.name || each.subject === layer.group);
    if (about.length) rows("decisions", Object.fromEntries(about.map((each, n) => [`${n + 1}. ${each.verdict}`, each.reason])));
    if (layer.code.length) {
      element("h2", "machine code, its first lines", detail);
      element("pre", layer.code.join("\n"), detail);
    }
    open(true);
  }

  function matches() {
    const wanted = search.value.trim().toLowerCase();
    if (!wanted) return [];
    return data.layers.filter((layer) => [layer.name, layer.group, layer.facts.operators].some((text) => text.toLowerCase().includes(wanted)));
  }

  function mark() {
    if (!tabs.drawn.has("graph")) return;
    const found = new Set(matches().map((layer) => layer.name));
    const place = document.querySelector("#graph .chart");
    Plotly.restyle(place, { "marker.line.width": [place.data[1].customdata.map((name) => (found.has(name) ? 4 : 0))] }, [1]);
  }

  function list() {
    const wanted = search.value.trim().toLowerCase();
    const body = document.querySelector("#decisions tbody");
    body.replaceChildren();
    for (const each of data.decisions) {
      if (![each.subject, each.verdict, each.reason].some((text) => text.toLowerCase().includes(wanted))) continue;
      const row = document.createElement("tr");
      for (const text of [each.subject, each.verdict, each.reason]) element("td", text, row);
      body.append(row);
    }
  }

  const rowsOfLayers = [...document.querySelectorAll("tr[data-layer]")];
  for (const row of rowsOfLayers) row.onclick = () => show(row.dataset.layer);

  function filter() {
    const wanted = search.value.trim().toLowerCase();
    for (const row of rowsOfLayers) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  }

  search.addEventListener("input", () => { mark(); list(); filter(); });
  search.addEventListener("keydown", (event) => {
    const [first] = matches();
    if (event.key === "Enter" && first) show(first.name);
  });
  list();
  tabs.choose("summary");
})();
