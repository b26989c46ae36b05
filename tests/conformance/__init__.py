"""The conformance ledger: which rows of the specifications' catalogues are proven, by which tests.

`catalogue` reads the rows, `plugin` watches the claims inside pytest, `ledger` adds them up,
`mutants` breaks the code behind covered rows and expects their claims to fail, `choices` and `page`
keep `docs/choices.md` and `docs/conformance.md` true.
"""
