"""Spans in a tree, some of them model calls: what sources of traces share.

Read in this order: `rows` (one typed row whatever wrote it) → `usage` and `keys` (disjoint counts)
→ `shapes`, `messages`, `blocks`, `tools`, `memory`, `content` (what was sent) → `tree`, `lanes`,
`steps` (who called whom) → `sessions` (all of it).
"""
