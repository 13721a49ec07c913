-- Findings, dearest first (USD); all sessions of the scope, or one.
SELECT project, user_id, session_id, ordinal, kind, lane, first_step, last_step, n_steps, tokens,
       wasted_usd, avoidable, inferred, evidence, remedy
FROM findings
WHERE ($project::VARCHAR IS NULL OR project = $project)
  AND ($user::VARCHAR IS NULL OR user_id = $user)
  AND ($session_id::VARCHAR IS NULL OR session_id = $session_id)
ORDER BY wasted_usd DESC NULLS LAST, project, user_id, session_id, ordinal
