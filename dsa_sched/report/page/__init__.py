"""One self-contained HTML page about an artifact: charts by Plotly, whose script lies in the page."""
