-- What becomes of a task whose worker is gone. Work that was begun before this migration had
-- nothing that would outlive its server.
ALTER TABLE tasks ADD COLUMN on_restart TEXT NOT NULL DEFAULT 'fail';
ALTER TABLE tasks ADD COLUMN max_attempts INTEGER;

-- Which workers live, and until when their claims hold.
CREATE TABLE workers (
    id       TEXT    NOT NULL PRIMARY KEY,
    until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Claimed tasks, for finding those whose worker is gone.
CREATE INDEX tasks_claimed ON tasks (id) WHERE worker IS NOT NULL;
