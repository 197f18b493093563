"use strict";
const element = (tag, text, parent) => {
  const made = document.createElement(tag);
  made.textContent = text;
  parent.append(made);
  return made;
};

// Shows one section at a time, and draws its chart when it is first seen; `after` is then called with its place.
function showTabs(figures, after) {
  const buttons = [...document.querySelectorAll("nav button")];
  const drawn = new Set();
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const themed = () => ({
    "paper_bgcolor": colour("--back"), "plot_bgcolor": colour("--back"), "font.color": colour("--text"),
    "xaxis.gridcolor": colour("--line"), "yaxis.gridcolor": colour("--line"),
  });

  function draw(name) {
    const figure = figures[name];
    if (!figure || drawn.has(name)) return;
    drawn.add(name);
    const place = document.querySelector(`#${name} .chart`);
    const base = { margin: { t: 20, r: 20 }, autosize: true, ...figure.layout };
    Plotly.newPlot(place, figure.data, base, { responsive: true, scrollZoom: true, displaylogo: false })
      .then(() => Plotly.relayout(place, themed()));
    after(name, place);
  }

  function choose(name) {
    for (const button of buttons) button.setAttribute("aria-selected", String(button.dataset.tab === name));
    for (const section of document.querySelectorAll("main > section")) section.classList.toggle("shown", section.id === name);
    draw(name);
  }

  for (const button of buttons) button.addEventListener("click", () => choose(button.dataset.tab));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const name of drawn) Plotly.relayout(document.querySelector(`#${name} .chart`), themed());
  });
  return { drawn, choose };
}
