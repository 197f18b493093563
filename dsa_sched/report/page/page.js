"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const layers = new Map(data.layers.map((layer) => [layer.name, layer]));
  const search = document.getElementById("search");
  const detail = document.getElementById("detail");
  const tabs = showTabs(data.figures, (name, place) => {
    if (name !== "graph") return;
    place.on("plotly_click", (event) => show(event.points[0].customdata));
    mark();
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

  function show(name) {
    const layer = layers.get(name);
    if (!layer) return;
    detail.replaceChildren();
    element("button", "close", detail).onclick = () => { detail.hidden = true; };
    rows(layer.name, layer.facts);
    rows(`group ${layer.group}`, layer["group facts"]);
    const about = data.decisions.filter((each) => each.subject === layer.name || each.subject === layer.group);
    if (about.length) rows("decisions", Object.fromEntries(about.map((each, n) => [`${n + 1}. ${each.verdict}`, each.reason])));
    if (layer.code.length) {
      element("h2", "machine code, its first lines", detail);
      element("pre", layer.code.join("\n"), detail);
    }
    detail.hidden = false;
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

  search.addEventListener("input", () => { mark(); list(); });
  search.addEventListener("keydown", (event) => {
    const [first] = matches();
    if (event.key === "Enter" && first) show(first.name);
  });
  list();
  tabs.choose("summary");
})();
