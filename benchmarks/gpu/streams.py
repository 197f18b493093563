def items(bench): return iter(())
def lines(rows): return []
def wrong(row): return ""
