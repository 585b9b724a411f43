-- The tables of a run's journal.

-- What is run, as JSON by key.
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL);

-- The prompts, in the order in which they are asked.
CREATE TABLE item (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, hazard TEXT NOT NULL, persona TEXT NOT NULL,
    template TEXT NOT NULL, fragment TEXT NOT NULL, prompt TEXT NOT NULL);

-- The response to an item; blank 1: nothing to judge (no letter, digit or symbol; finish 'refused': a refusal).
CREATE TABLE response (
    place INTEGER PRIMARY KEY, text TEXT NOT NULL, blank INTEGER NOT NULL, finish TEXT, served_by TEXT);

CREATE TABLE annotator (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, fingerprint TEXT NOT NULL);

-- safe, unsafe or invalid, with what the annotator said.
CREATE TABLE annotation (
    annotator INTEGER NOT NULL, place INTEGER NOT NULL, verdict TEXT NOT NULL, detail TEXT,
    PRIMARY KEY (annotator, place)) WITHOUT ROWID;

-- Every request that ended, with its outcome (ok or the kind of failure), of the system (annotator null) or
-- an annotator.
CREATE TABLE attempt (
    place INTEGER NOT NULL, annotator INTEGER, at REAL NOT NULL, seconds REAL NOT NULL,
    outcome TEXT NOT NULL, detail TEXT, prompt_tokens INTEGER, completion_tokens INTEGER, cost REAL);

-- Starts, stops, changed annotators.
CREATE TABLE event (at REAL NOT NULL, kind TEXT NOT NULL, detail TEXT);
