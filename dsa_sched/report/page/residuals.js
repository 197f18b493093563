"use strict";
(() => {
  const figure = JSON.parse(document.getElementById("data").textContent);
  const place = document.querySelector(".chart");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const themed = () => Plotly.relayout(place, {
    "paper_bgcolor": colour("--back"), "plot_bgcolor": colour("--back"), "font.color": colour("--text"),
    "xaxis.gridcolor": colour("--line"), "yaxis.gridcolor": colour("--line"),
  });
  Plotly.newPlot(place, figure.data, { margin: { t: 20, r: 20 }, autosize: true, ...figure.layout }, { responsive: true, displaylogo: false })
    .then(themed);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themed);
})();
