def sub(path, old, new, count=1):
    text = open(path).read()
    assert text.count(old) >= 1, (path, old)
    open(path, "w").write(text.replace(old, new, count))
p = "tests/page/test_keys.py"
sub(p, '''        page.wait_for_selector("#skew .middle")
''', '''        page.wait_for_selector("#skew .skew-says")
''')
sub(p, '''    shown = page.eval_on_selector("[data-figure=key_total]", "each => JSON.parse(each.dataset.decay)")
''', '''    shown = json.loads(page.get_attribute("[data-figure=key_total]", "data-decay"))
''')
sub(p, '''    rows = page.eval_on_selector_all("#keys tbody tr", "rows => rows.map(row => ({...row.dataset}))")
''', '''    listed = "rows => rows.map(row => ({...row.dataset}))"
    rows = page.eval_on_selector_all("#keys tbody tr", listed)
''')
sub(p, '''    page.wait_for_function("few => document.querySelectorAll('#keys tbody tr').length < few", arg=few)
''', '''    fewer = "few => document.querySelectorAll('#keys tbody tr').length < few"
    page.wait_for_function(fewer, arg=few)
''')
t = open(p).read()
t = t.replace('''    page.wait_for_function(
        "count => Math.abs(document.querySelector('#key-panel').dataset.last - count) < 1e-6 * count",
        arg=count,
    )
''', '''    page.wait_for_function(ENDS_AT, arg=count)
''').replace('''        page.wait_for_function(
            "count => Math.abs(document.querySelector('#key-panel').dataset.last - count) <= 1e-6 * count",
            arg=count,
        )
''', '''        page.wait_for_function(ENDS_AT, arg=count)
''')
t = t.replace('''NAMES = ("ada"''', '''ENDS_AT = """count => {
    const last = document.querySelector("#key-panel").dataset.last;
    return last !== undefined && Math.abs(last - count) <= 1e-6 * count;
}"""
NAMES = ("ada"''')
t = t.replace('''from collections.abc import Iterator
''', '''import json
from collections.abc import Iterator
''', 1)
open(p, "w").write(t)
p = "decaysketch/cli/serve_check.py"
sub(p, '''    asked: dict[str, Any] = {"aggregate": "count", "now": max(known, default=0)}
    kind = FAMILIES[state["family"]].input
''', '''    family = FAMILIES[state["family"]]
    counted = "count" if "count" in family.questions else "key_total"
    asked: dict[str, Any] = {"aggregate": counted, "now": max(known, default=0)}
    kind = family.input
''')
