
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache::Buffers - what is in shared buffers, and does it equal the files?

=head1 DESCRIPTION

These subs look at a running server through pg_buffercache and pg_stat_io.

=cut

package PCache::Buffers;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use PCache::Tables qw(:DEFAULT $OUR_RELATIONS);
use Test::More;

our @EXPORT = qw(
  warm_up
  relation_reads
  valid_buffers
  permanent_buffers
  cached_table_pages
  usage_counts
  pages_equal_disk
);

# Read all of our relations into shared buffers, and whatever catalogs it takes
# to measure that.  Returns the number of valid buffers.
sub warm_up
{
	my ($node) = @_;

	$node->safe_psql('postgres',
		"SELECT sum(pg_prewarm(rel)) FROM ($OUR_RELATIONS) r");
	relation_reads($node) for 1 .. 2;
	cached_table_pages($node);
	return valid_buffers($node);
}

# Read all of our tables again, in a new session, and return the number of
# relation blocks that this had to read from disk.  The query may be given.
sub relation_reads
{
	my ($node, $sql) = @_;

	$sql //= read_all_sql($node);
	$node->safe_psql('postgres', "SELECT pg_stat_reset_shared('io')");
	$node->safe_psql('postgres', "$sql; SELECT pg_stat_force_next_flush()");
	return $node->safe_psql('postgres', q{
SELECT (coalesce(sum(read_bytes), 0) / 8192)::bigint FROM pg_stat_io
WHERE object = 'relation' AND backend_type IN ('client backend', 'io worker')});
}

# The query: each table by sequential scan, and some by index.
sub read_all_sql
{
	my ($node) = @_;

	return join '; ',
	  'SET enable_seqscan = on',
	  (map { "SELECT count(*), sum(length(t::text)) FROM $_ t" } data_tables($node)),
	  'SET enable_seqscan = off',
	  'SET enable_bitmapscan = off',
	  'SELECT sum(length(filler)) FROM t_heap WHERE id > 0',
	  'SELECT count(*) FROM (SELECT grp FROM t_heap WHERE grp >= 0 OFFSET 0) s',
	  'SELECT count(*) FROM t_toast WHERE id > 0';
}

# The number of buffers that hold a page.
sub valid_buffers
{
	my ($node) = @_;
	return $node->safe_psql('postgres',
		'SELECT count(*) FROM pg_buffercache WHERE relfilenode IS NOT NULL');
}

# Those that a crash may leave: pages of main forks of permanent relations.
sub permanent_buffers
{
	my ($node) = @_;
	return $node->safe_psql('postgres', q{
SELECT count(*) FROM pg_buffercache b WHERE relfilenode IS NOT NULL AND relforknumber = 0 AND NOT isdirty
  AND NOT EXISTS (
  SELECT FROM pg_class c WHERE relpersistence = 'u'
    AND pg_relation_filenode(c.oid) = b.relfilenode AND NOT pg_is_in_recovery()
    AND b.reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database()))});
}

# How many pages of data_tables(), indexes and toast included, are cached in a
# database (default: postgres).  Does not read any of them.
sub cached_table_pages
{
	my ($node, $db) = @_;
	my $tables = join ', ', map { "'$_'" } data_tables();

	return $node->safe_psql($db // 'postgres', qq{
SELECT count(*) FROM pg_buffercache b WHERE b.reldatabase =
  (SELECT oid FROM pg_database WHERE datname = current_database())
  AND b.relfilenode IN (
SELECT pg_relation_filenode(c.oid) FROM pg_class c
LEFT JOIN pg_index i ON i.indexrelid = c.oid
WHERE c.relname IN ($tables)
   OR i.indrelid IN (SELECT oid FROM pg_class WHERE relname IN ($tables))
   OR c.oid IN (SELECT reltoastrelid FROM pg_class WHERE relname IN ($tables)))});
}

# A reference to a hash, "relation/fork/block in buffer number" => usage count,
# for the buffers of our relations.
sub usage_counts
{
	my ($node) = @_;
	my $rows = $node->safe_psql('postgres', qq{
SELECT r.rel, b.relforknumber, b.relblocknumber, b.bufferid, b.usagecount
FROM pg_buffercache b JOIN ($OUR_RELATIONS) r
  ON b.relfilenode = pg_relation_filenode(r.rel)
WHERE b.reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())});
	my %usage;

	for (split /\n/, $rows)
	{
		my ($rel, $fork, $block, $buffer, $count) = split /\|/;
		$usage{"$rel/$fork/$block in buffer $buffer"} = $count;
	}
	return \%usage;
}

# A test: each cached clean page of ours must equal what is in the file, except
# for the checksum, which is set in a copy when a page is written.  Free space
# maps are left out, because PostgreSQL changes them without marking them dirty.
# A standby does so with hint bits in heap pages: with hints => 1 these may
# differ.  Returns the number of pages that were compared.
sub pages_equal_disk
{
	my ($node, $name, %params) = @_;
	my $ignored_bits = $params{hints} ? 15 : 0;
	my ($all, $different) = split /\|/, $node->safe_psql('postgres', qq{
WITH pages AS MATERIALIZED (
  SELECT r.rel, (ARRAY['main','fsm','vm','init'])[b.relforknumber + 1] AS fork,
    b.relblocknumber AS blk
  FROM pg_buffercache b
  JOIN ($OUR_RELATIONS) r ON b.relfilenode = pg_relation_filenode(r.rel)
  WHERE NOT b.isdirty AND b.relforknumber <> 1
    AND b.reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
), contents AS (
  SELECT rel, fork, blk, get_raw_page(rel::text, fork, blk) AS cached,
    pg_read_binary_file(pg_relation_filepath(rel) ||
      CASE fork WHEN 'main' THEN '' ELSE '_' || fork END, blk * 8192, 8192) AS stored
  FROM pages
), masked AS (
  SELECT rel, fork, blk, @{[ masked('cached') ]} AS cached, @{[ masked('stored') ]} AS stored
  FROM contents
), differences AS (
  SELECT rel || ' ' || fork || ' ' || blk AS page,
    (SELECT string_agg(i::text, ',') FROM generate_series(0, 8191) i
     WHERE (get_byte(cached, i) # get_byte(stored, i)) & ~$ignored_bits <> 0) AS bytes
  FROM masked WHERE cached <> stored
)
SELECT (SELECT count(*) FROM masked),
  (SELECT coalesce(string_agg(page || ' ' || bytes, '; '), '')
   FROM differences WHERE bytes IS NOT NULL)});

	cmp_ok($all, '>', 100, "$name: pages compared with the files");
	is(substr($different, 0, 1000), '', "$name: each cached page equals the file");
	return $all;
}

# SQL for a page without its checksum.
sub masked
{
	my ($page) = @_;
	return "overlay($page placing '\\x0000'::bytea from 9 for 2)";
}

1;
