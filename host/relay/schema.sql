-- The tables of Quern in a database of an application. The script can be repeated: what exists, stays.

BEGIN;
SET LOCAL lock_timeout = '2s';
CREATE SCHEMA IF NOT EXISTS quern;

CREATE TABLE IF NOT EXISTS quern.version (version int NOT NULL);
INSERT INTO quern.version SELECT 1 WHERE NOT EXISTS (SELECT FROM quern.version);

-- The roles that belong to one tenant. Others may insert and read rows of every tenant. PostgreSQL itself enforces it:
-- see the end of this script.
CREATE TABLE IF NOT EXISTS quern.tenants (role regrole PRIMARY KEY, tenant text NOT NULL);
GRANT SELECT ON quern.tenants TO PUBLIC;
DO $$ -- a name leads to no role, or to another one, once the role is renamed
DECLARE gone text;
BEGIN
  IF (SELECT atttypid FROM pg_attribute WHERE attrelid = 'quern.tenants'::regclass AND attname = 'role') = 'name'::regtype THEN
    SELECT string_agg(role, ', ') INTO gone FROM quern.tenants WHERE role::text NOT IN (SELECT rolname FROM pg_roles);
    IF gone IS NOT NULL THEN
      RAISE EXCEPTION 'quern.tenants has roles that do not exist: %', gone USING HINT =
        'If one was renamed, UPDATE quern.tenants SET role = its new name; otherwise DELETE its row. Then repeat this.';
    END IF;
    ALTER TABLE quern.tenants ALTER COLUMN role TYPE regrole USING quote_ident(role)::regrole;
  END IF;
END $$;
CREATE OR REPLACE FUNCTION quern.my_tenant() RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE mine text[];
BEGIN
  SELECT array_agg(tenant) INTO mine FROM quern.tenants
  WHERE role = (SELECT oid FROM pg_roles WHERE rolname = current_user);
  -- A role also belongs to the tenant of a role whose rights it inherits. Not so a role that may delete rows: a relay's,
  -- an owner or a superuser.
  IF mine IS NULL AND NOT has_table_privilege('quern.outbox', 'DELETE') THEN
    SELECT array_agg(DISTINCT tenant) INTO mine FROM quern.tenants t JOIN pg_roles r ON r.oid = t.role
    WHERE pg_has_role(r.oid, 'USAGE');
  END IF;
  IF cardinality(mine) > 1 THEN
    RAISE insufficient_privilege USING
      MESSAGE = format('the role %I belongs to several tenants: %s', current_user, array_to_string(mine, ', ')),
      HINT = 'Revoke its membership in the roles of all but one, or SET ROLE to one of them.';
  END IF;
  RETURN mine[1];
END $$;

-- A row is a task to enqueue or a publication. An application inserts it in its own transaction, and the relay deletes
-- it when the task is in Redis. Give parameters (bytes) or json, or neither.
CREATE TABLE IF NOT EXISTS quern.outbox (
  seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id         text NOT NULL DEFAULT gen_random_uuid()::text
             CONSTRAINT "id: 1 to 128 characters from 0x21 to 0x7e, but not . or .."
             CHECK (id ~ '^[\x21-\x7e]{1,128}$' AND id NOT IN ('.', '..')),
  queue      text
             CONSTRAINT "queue: 1 to 128 characters from 0x21 to 0x7e, but not . or .."
             CHECK (queue ~ '^[\x21-\x7e]{1,128}$' AND queue NOT IN ('.', '..')),
  topic      text
             CONSTRAINT "topic: 1 to 128 of 0x21 to 0x7e without *, not . or .."
             CHECK (topic ~ '^[\x21-\x29\x2b-\x7e]{1,128}$' AND topic NOT IN ('.', '..')),
  parameters bytea
             CONSTRAINT "parameters: at most 64 MiB" CHECK (octet_length(parameters) <= 67108864),
  json       json
             CONSTRAINT "json: at most 64 MiB" CHECK (octet_length(json::text) <= 67108864),
  options    jsonb NOT NULL DEFAULT '{}'
             CONSTRAINT "options: an object of at most 64 KiB"
             CHECK (jsonb_typeof(options) = 'object' AND octet_length(options::text) <= 65536),
  tenant     text
             CONSTRAINT "tenant: 1 to 32 of a-z, 0-9 and -" CHECK (tenant ~ '^([a-z0-9-]{1,32}|\{[a-z0-9-]{1,32}\})$'),
  created    timestamptz NOT NULL DEFAULT clock_timestamp()
             CONSTRAINT "created: from 2000 to 2200" CHECK (created BETWEEN '2000-01-01' AND '2200-01-01'),
  CONSTRAINT "queue or topic: give one of them" CHECK (num_nonnulls(queue, topic) = 1),
  CONSTRAINT "parameters or json: give at most one of them" CHECK (num_nonnulls(parameters, json) <= 1)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Rows that the relay could not make a task of. They block nothing, and stay until somebody retries or deletes them.
CREATE TABLE IF NOT EXISTS quern.outbox_refused (
  LIKE quern.outbox,
  error   text NOT NULL,
  refused timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX IF NOT EXISTS outbox_refused_seq ON quern.outbox_refused (seq);

-- Rows that were relayed, for as long as the relay holds them, so that they can be sent once more.
CREATE TABLE IF NOT EXISTS quern.outbox_held (
  LIKE quern.outbox,
  relayed timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS outbox_held_seq ON quern.outbox_held (seq);
CREATE INDEX IF NOT EXISTS outbox_held_relayed ON quern.outbox_held (relayed);

-- How tasks ended that were enqueued with the option report.
CREATE TABLE IF NOT EXISTS quern.ended (
  tenant     text NOT NULL,
  id         text NOT NULL,
  status     text NOT NULL,
  reason     text,
  result     bytea,
  error      text,
  attempts   int NOT NULL,
  ended      timestamptz NOT NULL,
  PRIMARY KEY (tenant, id)
);
CREATE INDEX IF NOT EXISTS ended_ended ON quern.ended (ended);

-- Which relay leads a source. The others wait until its lease is over.
CREATE TABLE IF NOT EXISTS quern.relays (
  source     text PRIMARY KEY,
  holder     text NOT NULL,
  since      timestamptz NOT NULL,
  until      timestamptz NOT NULL,
  notified   boolean NOT NULL,
  error      text
) WITH (fillfactor = 50);

-- What runs of handlers have committed: a row is part of the transaction of a task, and has what the host then writes
-- to Redis. A step is a part of a task that is done once. A role sees and makes only its own rows.
CREATE TABLE IF NOT EXISTS quern.runs (
  role       name NOT NULL DEFAULT session_user,
  tenant     text NOT NULL,
  task       text NOT NULL,
  created    text NOT NULL,
  step       text NOT NULL DEFAULT '',
  settlement bytea NOT NULL
             CONSTRAINT "settlement: at most 256 MiB, or 1 MiB of a step"
             CHECK (octet_length(settlement) <= CASE step WHEN '' THEN 268435456 ELSE 1048576 END),
  committed  timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT runs_pkey PRIMARY KEY (role, tenant, task, created, step)
);
CREATE INDEX IF NOT EXISTS runs_committed ON quern.runs USING brin (committed) WITH (pages_per_range = 16);
DO $$
DECLARE p record;
BEGIN
  FOR p IN SELECT * FROM (VALUES ('tenants', 'role'), ('outbox', 'seq'), ('ended', 'tenant, id'), ('relays', 'source'),
    ('runs', 'role, tenant, task, created, step')) keys (name, columns)
  WHERE NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = ('quern.' || name)::regclass AND contype = 'p') LOOP
    EXECUTE format('ALTER TABLE quern.%I ADD PRIMARY KEY (%s)', p.name, p.columns);
  END LOOP;
  IF NOT (SELECT relrowsecurity FROM pg_class WHERE oid = 'quern.runs'::regclass) THEN
    ALTER TABLE quern.runs ENABLE ROW LEVEL SECURITY;
  END IF;
  FOR p IN SELECT * FROM (VALUES
    ('look', 'SELECT USING (role = session_user)'),
    ('make', 'INSERT WITH CHECK (role = session_user)'),
    -- The host deletes rows of tasks that have long ended.
    ('forget', $p$DELETE USING (role = session_user AND committed < now() - interval '1 minute')$p$)
  ) own (name, rule) WHERE name NOT IN (SELECT polname FROM pg_policy WHERE polrelid = 'quern.runs'::regclass) LOOP
    EXECUTE format('CREATE POLICY %I ON quern.runs FOR %s', p.name, p.rule);
  END LOOP;
END $$;

-- wake() tells a sleeping relay of new rows. While the relay is awake it holds the lock of the trigger's condition, and
-- nothing is sent: a notification makes the commits of all writers wait for each other.
CREATE OR REPLACE FUNCTION quern.wake() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM pg_notify('quern_outbox', '');
  RETURN NULL;
END $$;
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'quern.outbox'::regclass AND tgname = 'wake') THEN
    CREATE TRIGGER wake AFTER INSERT ON quern.outbox FOR EACH STATEMENT
    WHEN (pg_catalog.pg_try_advisory_xact_lock_shared(8171052443187213643)) EXECUTE FUNCTION quern.wake();
  END IF;
  IF EXISTS (SELECT FROM pg_trigger
    WHERE tgrelid = 'quern.outbox'::regclass AND tgname = 'wake' AND tgenabled NOT IN ('O', 'A')) THEN
    ALTER TABLE quern.outbox ENABLE TRIGGER wake;
  END IF;
END $$;

-- enqueue() and enqueue_bytes() are for triggers and for SQL alone. They return the task's ID.
CREATE OR REPLACE FUNCTION quern.enqueue(queue text, parameters json DEFAULT NULL, options jsonb DEFAULT '{}')
RETURNS text LANGUAGE sql AS $$
  INSERT INTO quern.outbox (id, queue, json, options)
  VALUES (coalesce(options->>'id', gen_random_uuid()::text), queue, parameters, options - 'id') RETURNING id
$$;
CREATE OR REPLACE FUNCTION quern.enqueue_bytes(queue text, parameters bytea, options jsonb DEFAULT '{}')
RETURNS text LANGUAGE sql AS $$
  INSERT INTO quern.outbox (id, queue, parameters, options)
  VALUES (coalesce(options->>'id', gen_random_uuid()::text), queue, parameters, options - 'id') RETURNING id
$$;

-- A role of one tenant inserts and reads rows of that tenant alone; its rows need not name the tenant.
ALTER TABLE quern.outbox ALTER COLUMN tenant SET DEFAULT quern.my_tenant();
DO $$
DECLARE tab text;
BEGIN
  FOREACH tab IN ARRAY ARRAY['outbox', 'ended'] LOOP
    IF NOT EXISTS (SELECT FROM pg_policies WHERE schemaname = 'quern' AND tablename = tab AND policyname = 'own_tenant') THEN
      EXECUTE format('CREATE POLICY own_tenant ON quern.%I
        USING (coalesce((SELECT quern.my_tenant()), tenant) IS NOT DISTINCT FROM tenant)', tab);
    END IF;
    IF NOT (SELECT relrowsecurity FROM pg_class WHERE oid = format('quern.%I', tab)::regclass) THEN
      EXECUTE format('ALTER TABLE quern.%I ENABLE ROW LEVEL SECURITY', tab);
    END IF;
  END LOOP;
END $$;
COMMIT;
