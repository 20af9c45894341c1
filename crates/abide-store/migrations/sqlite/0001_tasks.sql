-- One row a task, one column a field of abide_core::Record.
--
-- The table has a rowid on purpose: rows are often beyond a kilobyte, and SQLite keeps four times
-- as much of a row inside a leaf of a rowid table as inside one of a WITHOUT ROWID table. What may
-- be large comes last, so that reading the columns before it never follows overflow pages.
CREATE TABLE tasks (
    id               TEXT    NOT NULL PRIMARY KEY,
    owner            TEXT    NOT NULL,
    tool             TEXT    NOT NULL,
    state            TEXT    NOT NULL,
    version          INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    last_updated_at  INTEGER NOT NULL,
    expires_at       INTEGER,
    ttl_ms           INTEGER,
    timeout_ms       INTEGER,
    keep_ms          INTEGER,
    poll_interval_ms INTEGER NOT NULL,
    attempts         INTEGER NOT NULL,
    fence            INTEGER NOT NULL,
    worker           TEXT,
    clock            INTEGER,
    why              TEXT,
    status_message   TEXT,
    arguments        TEXT    NOT NULL,
    inputs           TEXT,
    outcome          TEXT
) STRICT;

-- The queue of each tool, oldest first: ids begin with the time of creation.
CREATE INDEX tasks_queued ON tasks (tool, id) WHERE state = 'queued';

-- What an engine looks at when it starts.
CREATE INDEX tasks_unfinished ON tasks (id)
    WHERE state IN ('queued', 'working', 'input_required', 'stopping');

-- The sweep: promises that run out before the work has ended, and tasks to delete. A task is in
-- one of the two, so neither pass has to step over the other's rows.
CREATE INDEX tasks_promised ON tasks (expires_at)
    WHERE expires_at IS NOT NULL
      AND state IN ('queued', 'working', 'input_required', 'stopping');
CREATE INDEX tasks_expiring ON tasks (expires_at)
    WHERE expires_at IS NOT NULL
      AND state IN ('completed', 'failed', 'cancelled');
