
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache::Tables - what do the tables of a test hold, and is it still that?

=head1 DESCRIPTION

Tests have the same tables, those of data_tables(), which load_data() makes.  A
checksum over all rows tells whether the contents are right after a restart.

=cut

package PCache::Tables;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use PCache::Node;
use Test::More;

# The tables of load_data() whose contents survive a crash, and go to a standby.
use constant LOGGED => qw(t_heap t_toast t_kinds);

our @EXPORT = qw(
  LOGGED
  load_data
  data_tables
  checksums
);
our @EXPORT_OK = qw($OUR_RELATIONS);

=pod

=item load_data(node)

Create and fill the tables of data_tables() in database postgres: about 9 MB
of heap, toast and indexes of several kinds, an unlogged table, a sequence.

=cut

sub load_data
{
	my ($node, %params) = @_;
	my $rows = $params{rows} // 20000;

	$node->safe_psql('postgres', qq{
CREATE EXTENSION IF NOT EXISTS pg_buffercache;
CREATE EXTENSION IF NOT EXISTS pg_prewarm;
CREATE EXTENSION IF NOT EXISTS pageinspect;
CREATE TABLE t_heap (id int PRIMARY KEY, grp int, filler text);
INSERT INTO t_heap SELECT i, i % 97, repeat(md5(i::text), 3)
  FROM generate_series(1, $rows) i;
CREATE INDEX t_heap_grp ON t_heap (grp);
CREATE TABLE t_toast (id int PRIMARY KEY, doc text);
ALTER TABLE t_toast ALTER doc SET STORAGE EXTERNAL;
INSERT INTO t_toast SELECT i, repeat(md5(i::text), 200)
  FROM generate_series(1, 100) i;
CREATE TABLE t_kinds (id int, arr int[], p point);
INSERT INTO t_kinds SELECT i, ARRAY[i, i % 7], point(i, -i)
  FROM generate_series(1, 2000) i;
CREATE INDEX t_kinds_gin ON t_kinds USING gin (arr);
CREATE INDEX t_kinds_gist ON t_kinds USING gist (p);
CREATE INDEX t_kinds_hash ON t_kinds USING hash (id);
CREATE INDEX t_kinds_brin ON t_kinds USING brin (id);
CREATE INDEX t_kinds_spgist ON t_kinds USING spgist (p);
CREATE UNLOGGED TABLE t_unlogged (id int PRIMARY KEY, filler text);
INSERT INTO t_unlogged SELECT i, md5(i::text) FROM generate_series(1, 5000) i;
CREATE SEQUENCE t_seq;
SELECT nextval('t_seq');
-- not part of data_tables(): changed by some tests before a crash
CREATE TABLE t_other (id int, filler text);
});
	$node->safe_psql('postgres',
		'VACUUM (ANALYZE) t_heap, t_toast, t_kinds, t_unlogged');
	$node->safe_psql('postgres', 'CHECKPOINT');
	return;
}

# The names of these tables.  Given a node that is a standby, the unlogged one is
# left out.
sub data_tables
{
	my ($node) = @_;
	my @tables = LOGGED;

	push @tables, 't_unlogged'
	  if !defined $node
	  || $node->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 'f';
	return @tables;
}

# A query for all relations of ours, with their indexes and toast: rel, relkind.
our $OUR_RELATIONS = q{
  SELECT c.oid::regclass AS rel, c.relkind FROM pg_class c
  WHERE c.relnamespace IN ('public'::regnamespace, 'pg_toast'::regnamespace)
    AND c.relkind IN ('r', 'i', 't', 'S')
    AND (c.relpersistence = 'p' OR NOT pg_is_in_recovery())
    AND (c.relnamespace = 'public'::regnamespace
         OR c.oid IN (SELECT reltoastrelid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
         OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN
              (SELECT reltoastrelid FROM pg_class WHERE relnamespace = 'public'::regnamespace)))};

# A checksum for each table, as one text, ordered by name.
#
#   tables   reference to a list (default: data_tables(), and the sequence)
#   db       database, default postgres
sub checksums
{
	my ($node, %params) = @_;
	my @tables = @{ $params{tables} // [ data_tables($node) ] };
	my $db = $params{db} // 'postgres';
	my @queries = map {
		"SELECT '$_', count(*), coalesce(sum(hashtextextended(t::text, 0)), 0) FROM $_ t"
	} @tables;

	push @queries, q{SELECT 't_seq', last_value, 0 FROM t_seq}
	  if !defined $params{tables};
	return $node->safe_psql($db, join(' UNION ALL ', @queries) . ' ORDER BY 1');
}

1;
