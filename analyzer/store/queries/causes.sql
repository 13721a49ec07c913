-- What each kind of finding cost in a scope (USD, tokens), dearest first.
SELECT kind, avoidable, count(*) AS n_findings, count(DISTINCT (project, user_id, session_id))
           AS n_sessions,
       sum(n_steps)::BIGINT AS n_steps, sum(tokens)::BIGINT AS tokens,
       sum(wasted_usd) AS wasted_usd
FROM findings
WHERE ($project::VARCHAR IS NULL OR project = $project)
  AND ($user::VARCHAR IS NULL OR user_id = $user)
GROUP BY ALL
ORDER BY sum(wasted_usd) DESC NULLS LAST, kind, avoidable
