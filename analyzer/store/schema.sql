-- Version 1. Later changes are files in migrations/, applied in the order of their names.
CREATE TABLE meta (key VARCHAR, value VARCHAR);

-- A file, or (owner = its own id) a set of files that were read jointly; members name their set.
CREATE TABLE files (
    file_id BIGINT, owner BIGINT, source VARCHAR, project VARCHAR, user_id VARCHAR, path VARCHAR,
    size BIGINT, digest BLOB, content VARCHAR, ingested_at TIMESTAMP,
    n_steps BIGINT, n_parts BIGINT, n_problems BIGINT
);

-- One lane as one file recorded it.
CREATE TABLE recordings (
    rec BIGINT, file_id BIGINT, project VARCHAR, user_id VARCHAR, session_id VARCHAR, lane VARCHAR,
    parent VARCHAR, title VARCHAR, n_steps INTEGER, n_parts INTEGER,
    first_at TIMESTAMP, last_at TIMESTAMP
);

-- Every occurrence of a step. `step` numbers the counted ones of a lane from 0; NULL on copies.
-- Ranges are start, stop, start, stop …; breakpoints are position, seconds, position, seconds …
CREATE TABLE steps (
    rec BIGINT, seq INTEGER, key VARCHAR, "at" TIMESTAMP, ended_at TIMESTAMP, model VARCHAR,
    provider VARCHAR, has_usage BOOLEAN, input BIGINT, cache_read BIGINT, cache_write BIGINT,
    cache_write_5m BIGINT, cache_write_1h BIGINT, output BIGINT, reasoning BIGINT,
    prompt_ranges INTEGER[], breakpoints INTEGER[], settings VARCHAR, recorded BOOLEAN,
    response_ranges INTEGER[], human BOOLEAN, compaction VARCHAR, miss_reason VARCHAR,
    stop_reason VARCHAR, error VARCHAR, labels VARCHAR, copied_from VARCHAR, line BIGINT,
    reported_cost DOUBLE, counted BOOLEAN, step INTEGER
);

CREATE TABLE parts (
    rec BIGINT, idx INTEGER, section VARCHAR, role VARCHAR, kind VARCHAR, tool VARCHAR,
    call_id VARCHAR, digest BLOB, chars BIGINT, estimate BIGINT, envelope BIGINT,
    starts_message BOOLEAN, placeholder BOOLEAN, pack INTEGER, body_offset BIGINT,
    body_length BIGINT
);

-- Bodies of many parts, joined and compressed: content never stands in a row of its own. The
-- bodies of segment n are in a table packs_n (rec, pack, body), made when it is first written: a
-- checkpoint rewrites every table that changed, so a table that is full is never touched again.
CREATE TABLE pack_index (
    rec BIGINT, pack INTEGER, segment INTEGER, codec VARCHAR, raw_bytes BIGINT, stored_bytes BIGINT
);

-- Files that are being written in pieces: rows of theirs without a recording are left-overs.
CREATE TABLE unfinished (file_id BIGINT);

CREATE TABLE problems (
    file_id BIGINT, path VARCHAR, line BIGINT, pointer VARCHAR, message VARCHAR, raw BLOB
);

-- What follows is derived, rebuilt for whatever an ingest touched.
CREATE TABLE sessions (
    project VARCHAR, user_id VARCHAR, session_id VARCHAR, source VARCHAR, title VARCHAR,
    started_at TIMESTAMP, ended_at TIMESTAMP, n_steps BIGINT, n_lanes BIGINT, n_copies BIGINT,
    models VARCHAR[], input BIGINT, cache_read BIGINT, cache_write BIGINT, output BIGINT,
    fingerprint UBIGINT
);
CREATE TABLE touched_sessions (project VARCHAR, user_id VARCHAR, session_id VARCHAR);
CREATE TABLE touched_keys (project VARCHAR, key VARCHAR);

-- What an analysis found, one row a session in `facts`; stale once the fingerprint moves on.
CREATE TABLE facts (
    project VARCHAR, user_id VARCHAR, session_id VARCHAR, analysis_version VARCHAR,
    fingerprint UBIGINT
);
CREATE TABLE step_facts (
    project VARCHAR, user_id VARCHAR, session_id VARCHAR, lane VARCHAR, step INTEGER,
    prompt_tokens BIGINT, n_messages INTEGER, n_stubs INTEGER, last_stub_index INTEGER,
    cost_usd DOUBLE, gap_s DOUBLE, window_used DOUBLE, shared_prefix_tokens BIGINT,
    divergence_index INTEGER, expected_read BIGINT, lost_tokens BIGINT, verdict VARCHAR,
    inferred BOOLEAN, wasted_usd DOUBLE, expected BOOLEAN
);
CREATE TABLE findings (
    project VARCHAR, user_id VARCHAR, session_id VARCHAR, ordinal INTEGER, kind VARCHAR,
    lane VARCHAR, first_step INTEGER, last_step INTEGER, n_steps INTEGER, tokens BIGINT,
    wasted_usd DOUBLE, avoidable BOOLEAN, inferred BOOLEAN, evidence VARCHAR, remedy VARCHAR
);
