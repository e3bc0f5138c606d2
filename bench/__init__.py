"""How fast Holdfast is beside its peers, on this machine, in one run.

`python -m bench` measures every engine in turn and prints a table;
`python -m bench.measure` makes one measurement and prints one line of JSON.
"""
