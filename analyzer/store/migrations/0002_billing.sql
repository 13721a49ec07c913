-- How a request was billed, and contradictions in its counts; JSON texts, NULL where there are none.
ALTER TABLE steps ADD COLUMN IF NOT EXISTS terms VARCHAR;
ALTER TABLE steps ADD COLUMN IF NOT EXISTS apart VARCHAR;
ALTER TABLE steps ADD COLUMN IF NOT EXISTS doubts VARCHAR;
