"""Networks, written node by node as exporters write them, without weights."""
