"""One file a page, run by `apps/app.py`."""
