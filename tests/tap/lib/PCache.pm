
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache - clusters with a persistent cache, for the TAP tests

=head1 SYNOPSIS

  use PCache;

  my $node = new_node('main');            # initialized, with a pool, not started
  $node->start;
  load_data($node);
  my $before = warm_up($node);            # number of valid buffers
  my $offset = log_offset($node);
  $node->restart;
  is_warm($node, $offset, $before, 'after a fast stop');

=head1 DESCRIPTION

Pools lie in one directory per test script on tmpfs (below $ENV{PCACHE_SHM}),
which is removed at the end.

is_warm() and is_cold() are what most tests come down to.  Both look at the
server's own words in the log and at what is really in shared buffers.

=cut

package PCache;

use strict;
use warnings FATAL => 'all';

use Carp;
use Exporter 'import';
use Fcntl qw(:flock :mode SEEK_SET);
use File::Path qw(make_path remove_tree);
use File::Temp qw();
use IPC::Run qw();
use JSON::PP qw();
use List::Util qw(min max sum);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  BLCKSZ
  SUPERBLOCK_SIZE
  COPY_OFFSET
  WATERMARK_OFFSET
  DESCRIPTORS_OFFSET
  DESCRIPTOR_SIZE
  STATE_EMPTY
  STATE_ATTACHING
  STATE_DIRTY
  STATE_CLEAN

  pool_root
  new_node
  add_pool
  pool_dir
  pool_file
  state_file
  write_state
  set_mode
  with_install
  vanilla_install

  load_data
  data_tables
  warm_up
  relation_reads
  checksums
  checksums_without_pool
  pages_equal_disk
  valid_buffers
  permanent_buffers
  cached_table_pages
  usage_counts

  log_offset
  start_outcome
  is_warm
  is_cold
  start_nowait
  start_and_fail
  start_fails
  restart_warm
  warm_after_crash
  cold_after_crash
  wait_for_seals
  cold_after
  kill_all
  seal_and_kill
  change_and_crash
  contents_right
  cold_then_warm

  pcache
  verify_json
  status_json

  struct_fields
  crc32c
  read_bytes
  write_bytes
  read_superblock
  write_superblock
  patch_superblock
  damage_superblock
  read_descriptor
  write_descriptor
  sealed_slots
  watermarks
);

use constant {
	BLCKSZ => 8192,
	SUPERBLOCK_SIZE => 4096,
	COPY_OFFSET => 4096,
	WATERMARK_OFFSET => 8192,
	DESCRIPTORS_OFFSET => 2 * 1024 * 1024,
	DESCRIPTOR_SIZE => 64,
	STATE_EMPTY => 1,
	STATE_ATTACHING => 2,
	STATE_DIRTY => 3,
	STATE_CLEAN => 4,
};

# The share of valid buffers that a warm start has to keep.
use constant KEPT_RATIO => 0.999;

my $pool_root;
my $root_owner;
my %pool_dirs;

# One directory on tmpfs for all pools of this script.
sub pool_root
{
	if (!defined $pool_root)
	{
		my $parent = $ENV{PCACHE_SHM} // '/dev/shm';

		BAIL_OUT("no directory \"$parent\"") if !-d $parent;
		$pool_root = File::Temp::tempdir('pools-XXXXXX', DIR => $parent);
		$root_owner = $$;
	}
	return $pool_root;
}

# After the servers are down: Cluster.pm's END block was compiled earlier, so
# it runs later than this one.  A mapped file can be unlinked, though.
END
{
	my $rc = $?;

	if (defined $pool_root && $root_owner == $$)
	{
		chmod 0700, $pool_root;
		remove_tree($pool_root, { safe => 0, error => \my $ignored });
	}
	$? = $rc;
}

=pod

=item new_node(name, %params)

A cluster with the cache configured and its pool initialized, not started.

  init            parameters for PostgreSQL::Test::Cluster->init
  shared_buffers  default 32MB
  size            of the pool, default as shared_buffers
  directory       of the pool; default below pool_root()
  mode            default planned_restart; undef: configure nothing and make no pool
  conf            more lines for postgresql.conf

=cut

sub new_node
{
	my ($name, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(%{ $params{init} // {} });
	configure($node, %params);
	return $node;
}

sub configure
{
	my ($node, %params) = @_;
	my $shared_buffers = $params{shared_buffers} // '32MB';
	my $mode = exists $params{mode} ? $params{mode} : 'planned_restart';

	# Nothing that reads or writes pages on its own account.
	$node->append_conf('postgresql.conf', qq{
shared_buffers = $shared_buffers
autovacuum = off
bgwriter_lru_maxpages = 0
max_parallel_workers_per_gather = 0
checkpoint_timeout = 1h
max_wal_size = 1GB
});
	$node->append_conf('postgresql.conf', $params{conf}) if $params{conf};
	add_pool($node, %params) if defined $mode;
	return;
}

# Initialize a pool for a cluster that is down, and switch the cache on.
sub add_pool
{
	my ($node, %params) = @_;
	my $directory = $params{directory} // pool_root() . '/' . $node->name;
	my @size = defined $params{size} ? ('--size' => $params{size}) : ();

	my ($rc, $out, $err) = pcache($node, 'init',
		'--directory' => $directory,
		@size,
		@{ $params{init_options} // [] });
	BAIL_OUT("pg_pcache init failed: $err") if $rc != 0;
	$pool_dirs{ $node->data_dir } = $directory;
	set_mode($node, $params{mode} // 'planned_restart');
	return $directory;
}

sub pool_dir
{
	my ($node) = @_;
	return $pool_dirs{ $node->data_dir };
}

sub pool_file
{
	my ($node) = @_;
	return pool_dir($node) . '/pool';
}

sub state_file
{
	my ($node) = @_;
	return $node->data_dir . '/pg_pcache.state';
}

# Write a state file, given as text, with some values changed and a right CRC.
sub write_state
{
	my ($who, $text, %changes) = @_;

	$text =~ s/^$_ = .*$/$_ = $changes{$_}/m for keys %changes;
	$text =~ s/^crc = .*\n//m;
	$text .= sprintf "crc = %08x\n", crc32c($text);
	unlink state_file($who);
	append_to_file(state_file($who), $text);
	chmod 0600, state_file($who);
	return;
}

# Change persistent_cache_mode; undef takes it out of the file.
sub set_mode
{
	my ($node, $mode) = @_;

	$node->adjust_conf('postgresql.conf', 'persistent_cache_mode', undef);
	$node->append_conf('postgresql.conf', "persistent_cache_mode = $mode")
	  if defined $mode;
	return;
}

# The installation without the patches, or undef.
sub vanilla_install
{
	my $bin = $ENV{PCACHE_VANILLA};

	return undef if !defined $bin || !-x "$bin/postgres";
	$bin =~ s{/bin/?$}{};
	return $bin;
}

# Run code with this node's programs from another installation.
sub with_install
{
	my ($node, $install, $code) = @_;

	local $node->{_install_path} = $install;
	return $code->();
}

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

# Their names.  Given a node that is a standby, without the unlogged one.
sub data_tables
{
	my ($node) = @_;
	my @tables = qw(t_heap t_toast t_kinds);

	push @tables, 't_unlogged'
	  if !defined $node
	  || $node->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 'f';
	return @tables;
}

# All relations of ours, with their indexes and toast.
my $OUR_RELATIONS = q{
  SELECT c.oid::regclass AS rel, c.relkind FROM pg_class c
  WHERE c.relnamespace IN ('public'::regnamespace, 'pg_toast'::regnamespace)
    AND c.relkind IN ('r', 'i', 't', 'S')
    AND (c.relpersistence = 'p' OR NOT pg_is_in_recovery())
    AND (c.relnamespace = 'public'::regnamespace
         OR c.oid IN (SELECT reltoastrelid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
         OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN
              (SELECT reltoastrelid FROM pg_class WHERE relnamespace = 'public'::regnamespace)))};

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

# Read all of ours into shared buffers, and whatever catalogs it takes to
# measure that.  Returns the number of valid buffers.
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
# relation blocks that this had to read from disk.
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

# A checksum for each of our tables and the sequence, as one text.
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

# The same from a cold start that knows no pool.  The server must be down, is
# down afterwards, and the next start with the pool is cold.
sub checksums_without_pool
{
	my ($node, %params) = @_;
	my $result;

	set_mode($node, 'off');
	$node->start;
	$result = checksums($node, %params);
	$node->stop;
	set_mode($node, 'planned_restart');
	return $result;
}

# Each cached clean page of ours must equal what is in the file, except for
# the checksum, which is set in a copy when a page is written.  Free space maps
# are left out: PostgreSQL changes them without marking them dirty.  So does a
# standby with hint bits in heap pages: with hints => 1 these may differ.
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

sub masked
{
	my ($page) = @_;
	return "overlay($page placing '\\x0000'::bytea from 9 for 2)";
}

sub valid_buffers
{
	my ($node) = @_;
	return $node->safe_psql('postgres',
		'SELECT count(*) FROM pg_buffercache WHERE relfilenode IS NOT NULL');
}

# Those that a crash may leave: all but pages of unlogged relations in database
# postgres.
sub permanent_buffers
{
	my ($node) = @_;
	return $node->safe_psql('postgres', q{
SELECT count(*) FROM pg_buffercache b WHERE relfilenode IS NOT NULL AND NOT EXISTS (
  SELECT FROM pg_class c WHERE relpersistence = 'u'
    AND pg_relation_filenode(c.oid) = b.relfilenode AND NOT pg_is_in_recovery()
    AND b.reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database()))});
}

# How many pages of data_tables(), indexes and toast included, are cached.
# Does not read any of them.
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

# "fork block of relation => usage count" for the buffers of our relations.
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

sub log_offset
{
	my ($node) = @_;
	return -s $node->logfile // 0;
}

# What the server said of its last start since an offset in its log.
sub start_outcome
{
	my ($node, $offset) = @_;
	my $log = slurp_file($node->logfile, $offset // 0);
	my %outcome = (log => $log, dropped => {});

	while ($log =~ /persistent cache: kept (\d+) of (\d+) saved pages in (\d+) slots[^\n]*(?:\n[^\n]*DETAIL:  Dropped: ([^\n]*)\.)?/g)
	{
		@outcome{qw(start kept saved slots)} = ('warm', $1, $2, $3);
		$outcome{dropped} = {};
		if (defined $4)
		{
			/^(.*) (\d+)$/ and $outcome{dropped}{$1} = $2 for split /, /, $4;
		}
	}
	if ($log =~ /.*LOG:  persistent cache: starting cold: ([^\n]*)/s
		&& (!defined $outcome{start}
			|| rindex($log, 'starting cold') > rindex($log, 'persistent cache: kept')))
	{
		%outcome = (%outcome, start => 'cold', reason => $1, kept => 0);
	}
	return \%outcome;
}

# Did the start since offset keep what was valid?  Looks at the log, and at
# the buffers themselves.
sub is_warm
{
	my ($node, $offset, $valid, $name) = @_;
	my $outcome = start_outcome($node, $offset);

	if (($outcome->{start} // '') ne 'warm')
	{
		fail("$name: warm start");
		diag('cold: ' . ($outcome->{reason} // 'no word of it in the log'));
		return $outcome;
	}
	cmp_ok($outcome->{kept}, '>=', KEPT_RATIO * $valid,
		"$name: kept $outcome->{kept} of $valid valid buffers");
	cmp_ok(valid_buffers($node), '>=', $outcome->{kept},
		"$name: they are in shared buffers");
	return $outcome;
}

# Did the start since offset keep nothing, for the reason given?  No table of
# data_tables() may have been read since.
sub is_cold
{
	my ($node, $offset, $reason, $name) = @_;
	my $outcome = start_outcome($node, $offset);

	is($outcome->{start}, 'cold', "$name: cold start");
	like($outcome->{reason} // '', $reason, "$name: for the right reason");
	is(cached_table_pages($node), 0, "$name: no page of the tables is cached");
	return $outcome;
}

# Start a server, and do not wait for it to accept connections.
sub start_nowait
{
	my ($node) = @_;
	my $pidfile = $node->data_dir . '/postmaster.pid';

	# what a crash has left would be taken for the new one
	unlink $pidfile;
	local %ENV = $node->_get_env(PGAPPNAME => undef);
	system_or_bail('pg_ctl', '--no-wait', '--pgdata' => $node->data_dir,
		'--log' => $node->logfile, 'start');
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if -s $pidfile && slurp_file($pidfile) =~ /\n/;
		select undef, undef, undef, 0.1;
	}
	$node->_update_pid(1);
	return;
}

# Start a server that is to fail, and return what it logged.  Unlike
# $node->start(fail_ok => 1), fine with one that fails after pg_ctl has taken
# it for started.
sub start_and_fail
{
	my ($node, $name) = @_;
	my $offset = log_offset($node);
	my $pidfile = $node->data_dir . '/postmaster.pid';

	{
		local %ENV = $node->_get_env();
		PostgreSQL::Test::Utils::system_log('pg_ctl', '--wait',
			'--pgdata' => $node->data_dir,
			'--log' => $node->logfile,
			'start');
	}
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if !-e $pidfile || slurp_file($pidfile) =~ /^ready/m;
		select undef, undef, undef, 0.1;
	}
	if (-e $pidfile)
	{
		fail("$name: the server does not start");
		system_or_bail('pg_ctl', '--pgdata' => $node->data_dir, 'stop');
	}
	else
	{
		pass("$name: the server does not start");
	}
	return slurp_file($node->logfile, $offset);
}

# The server must refuse to start, with this in its log.
sub start_fails
{
	my ($node, $pattern, $name) = @_;

	like(start_and_fail($node, $name), $pattern, "$name: for the right reason");
	return;
}

# The proof that a cluster is all right again: a clean stop, and a warm start.
sub restart_warm
{
	my ($node, $name) = @_;
	my $valid = warm_up($node);
	my $offset = log_offset($node);

	$node->restart;
	return is_warm($node, $offset, $valid, $name);
}

=pod

=item cold_after(node, \$expected, name, reason, message, code)

The node runs.  Warm it up, stop it, run the code, start it again: cold, for
the reason that pg_pcache verify foretells and with the message given, and
with the contents in $expected, which the code may set.  Then stop it and
start it once more: warm.

=cut

sub cold_after
{
	my ($node, $expected, $name, $reason, $message, $code) = @_;
	my ($offset, $verdict, $outcome);

	warm_up($node);
	$node->stop;
	is(verify_json($node)->{rc}, 0, "$name: it would have been warm");
	$code->();
	$verdict = verify_json($node);
	is($verdict->{rc}, 2, "$name: pg_pcache verify says cold");
	is($verdict->{reason}, $reason, "$name: pg_pcache verify says why");
	$offset = log_offset($node);
	$node->start;
	$outcome = is_cold($node, $offset, $message, $name);
	is($outcome->{reason}, $verdict->{detail},
		"$name: pg_pcache verify and the server agree");
	is(checksums($node), $$expected, "$name: contents are right");
	restart_warm($node, "$name, then a clean stop");
	is(checksums($node), $$expected,
		"$name, then a clean stop: contents are right");
	return;
}

# Give the sealer the time to seal all that is queued: nothing may change.
sub wait_for_seals
{
	select undef, undef, undef, $_[0] // 1;
	return;
}

=pod

=item warm_after_crash(node, valid, name, ratio => 0.98)

A server in mode always is down after a crash, with that many permanent valid
buffers before it.  pg_pcache verify foretells a warm start; start it; it must
keep the ratio (default: all), and what was foretold.

=cut

sub warm_after_crash
{
	my ($node, $valid, $name, %params) = @_;
	my $ratio = $params{ratio} // 1;
	my $verdict = verify_json($node);
	my $offset = log_offset($node);
	my $outcome;

	is($verdict->{rc}, 0, "$name: pg_pcache verify says warm")
	  or diag($verdict->{detail} // $verdict->{stderr});
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "$name: warm start")
	  or diag($outcome->{reason} // 'no word of it in the log');
	cmp_ok($outcome->{kept}, '>=', $ratio * $valid,
		"$name: kept $outcome->{kept} of $valid valid buffers");
	is($outcome->{kept}, $verdict->{pages}{kept},
		"$name: pg_pcache verify and the server agree");
	note(join ', ', map { "dropped: $_ $outcome->{dropped}{$_}" } sort keys %{ $outcome->{dropped} });
	return $outcome;
}

# The same where nothing may be kept, for a reason as pg_pcache verify gives it
# (undef: do not ask it) and a message of the server.
sub cold_after_crash
{
	my ($node, $reason, $message, $name) = @_;
	my ($verdict, $offset, $outcome);

	if (defined $reason)
	{
		$verdict = verify_json($node);
		is($verdict->{rc}, 2, "$name: pg_pcache verify says cold");
		is($verdict->{reason}, $reason, "$name: pg_pcache verify says why");
	}
	$offset = log_offset($node);
	$node->start;
	# redo may have read pages of the tables already
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'cold', "$name: cold start");
	like($outcome->{reason} // '', $message, "$name: for the right reason");
	is($outcome->{reason}, $verdict->{detail},
		"$name: pg_pcache verify and the server agree")
	  if defined $reason && $reason ne 'new';
	return $outcome;
}

# Read all tables, have what is cached sealed, and kill the server.  Returns
# the number of permanent valid buffers before.
sub seal_and_kill
{
	my ($node) = @_;
	my $valid;

	warm_up($node);
	$valid = permanent_buffers($node);
	wait_for_seals();
	kill_all($node);
	return $valid;
}

my $changes = 0;

# Change the tables, each time in another way, and seal_and_kill().  Returns
# their checksums, but for the unlogged one, and the number of permanent valid
# buffers.
sub change_and_crash
{
	my ($node) = @_;
	my $expected;

	$changes++;
	$node->safe_psql('postgres',
		"UPDATE t_heap SET grp = grp + 1 WHERE id % 13 = $changes % 13");
	$expected = checksums($node, tables => [qw(t_heap t_toast t_kinds)]);
	return ($expected, seal_and_kill($node));
}

# Do the tables have these checksums, as change_and_crash() gives them?
sub contents_right
{
	my ($node, $expected, $name) = @_;

	return is(checksums($node, tables => [qw(t_heap t_toast t_kinds)]),
		$expected, "$name: contents are right");
}

# A crashed server starts cold (see cold_after_crash) with the contents given,
# and after the next crash it is warm.
sub cold_then_warm
{
	my ($node, $expected, $reason, $message, $name, %params) = @_;
	my $valid;

	cold_after_crash($node, $reason, $message, $name);
	contents_right($node, $expected, $name);
	($expected, $valid) = change_and_crash($node);
	warm_after_crash($node, $valid, "$name, then a crash", %params);
	contents_right($node, $expected, "$name, then a crash");
	return;
}

# SIGKILL to the postmaster and to all of its children, and wait for them to
# be gone.
sub kill_all
{
	my ($node) = @_;
	my $postmaster = $node->{_pid};
	my @pids = ($postmaster);

	# Nobody may notice that another one has died, and clean up.
	kill 'STOP', $postmaster;
	for my $stat (glob '/proc/[0-9]*/stat')
	{
		my $line = eval { slurp_file($stat) } // next;
		push @pids, $1 if $line =~ /^(\d+) \(.*\) \S+ $postmaster /s;
	}
	kill 'KILL', reverse @pids;
	wait_for_death(@pids);
	$node->{_pid} = undef;

	# A zombie that its new parent is slow to reap still counts as a server.
	for (1 .. 100)
	{
		return if !-e "/proc/$postmaster";
		select undef, undef, undef, 0.1;
	}
	unlink $node->data_dir . '/postmaster.pid';
	return;
}

sub wait_for_death
{
	my @pids = @_;

	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return
		  if !grep {
			my $line = eval { slurp_file("/proc/$_/stat") };
			defined $line && $line !~ /^\d+ \(.*\) [ZX] /s
		  } @pids;
		select undef, undef, undef, 0.1;
	}
	croak "processes @pids do not die";
}

# Run pg_pcache on a node's cluster.  Returns exit status, stdout and stderr.
sub pcache
{
	my ($node, @args) = @_;
	my @command = ('pg_pcache', '-D' => $node->data_dir, @args);

	note('running: ', join ' ', @command);
	IPC::Run::run(\@command, '<' => \undef, '>' => \my $out, '2>' => \my $err);
	note($err) if $err ne '';
	return (($? & 127) ? -($? & 127) : $? >> 8, $out, $err);
}

# pg_pcache verify --json, decoded, with exit status and stderr added.
sub verify_json
{
	my ($node, @args) = @_;
	my ($rc, $out, $err) = pcache($node, 'verify', '--json', @args);
	my $json = $out eq '' ? {} : JSON::PP::decode_json($out);

	return { %$json, rc => $rc, stderr => $err };
}

sub status_json
{
	my ($node, @args) = @_;
	my ($rc, $out, $err) = pcache($node, 'status', '--json', @args);
	my $json = $out eq '' ? {} : JSON::PP::decode_json($out);

	return { %$json, rc => $rc, stderr => $err };
}

# ---------------------------------------------------------------------------
# The pool file, byte by byte.
# ---------------------------------------------------------------------------

my %TYPES = (
	char => [ 1, 'a' ],
	uint8 => [ 1, 'C' ],
	uint16 => [ 2, 'S' ],
	uint32 => [ 4, 'L' ],
	int32 => [ 4, 'l' ],
	uint64 => [ 8, 'Q' ],
	int64 => [ 8, 'q' ],);

=pod

=item struct_fields(struct)

The fields of a struct in pcache_layout.h, in order: name, offset, size and
the template for unpack().  Structs in it are taken apart ("pending.location",
"dimms[0].id"); of an array of structs the first and last element are listed.

=cut

sub struct_fields
{
	my ($struct) = @_;
	my ($fields, $size) = layout($struct);
	return @$fields;
}

sub layout
{
	my ($struct) = @_;
	my $header = header_text();
	my ($body) = $header =~ /typedef struct $struct\s*\{(.*?)\}\s*$struct;/s
	  or croak "no struct $struct in pcache_layout.h";
	my @fields;
	my $offset = 0;
	my $max_align = 1;

	$body =~ s{/\*.*?\*/}{}gs;
	for my $declaration (split /;/, $body)
	{
		$declaration =~ /^\s*(\w+)\s+(\w+)(?:\[(\w+)\])?\s*$/s or next;
		my ($type, $name, $dimension) = ($1, $2, $3);
		my $count = defined $dimension ? number($dimension) : 1;
		my ($element_fields, $size, $template);
		my $align;

		if (exists $TYPES{$type})
		{
			($size, $template) = @{ $TYPES{$type} };
			$align = $size;
		}
		else
		{
			($element_fields, $size, $align) = layout($type);
		}
		$offset = ($offset + $align - 1) & ~($align - 1);
		$max_align = max($max_align, $align);
		if (!defined $element_fields)
		{
			push @fields,
			  {
				name => $name,
				offset => $offset,
				size => $size * $count,
				template => $count > 1 ? 'a' . $size * $count : $template
			  };
		}
		else
		{
			my @indexes = $count > 1 ? (0, $count - 1) : (0);

			for my $i (@indexes)
			{
				push @fields,
				  map { {
					%$_,
					name => ($count > 1 ? "${name}[$i]" : $name) . ".$_->{name}",
					offset => $offset + $i * $size + $_->{offset}
				} } @$element_fields;
			}
		}
		$offset += $size * $count;
	}
	$offset = ($offset + $max_align - 1) & ~($max_align - 1);
	return (\@fields, $offset, $max_align);
}

my $header_text;

sub header_text
{
	$header_text //= slurp_file(
		"$ENV{PCACHE_ROOT}/src/include/storage/pcache_layout.h");
	return $header_text;
}

sub number
{
	my ($text) = @_;

	return $text if $text =~ /^\d+$/;
	return $1 if header_text() =~ /^#define\s+$text\s+(\d+)\b/m;
	croak "no number $text in pcache_layout.h";
}

my @crc_table = map {
	my $c = $_;
	$c = $c & 1 ? ($c >> 1) ^ 0x82F63B78 : $c >> 1 for 1 .. 8;
	$c
} 0 .. 255;

# CRC-32C (Castagnoli) of a string of bytes.
sub crc32c
{
	my ($bytes) = @_;
	my $crc = 0xFFFFFFFF;

	$crc = $crc_table[ ($crc ^ $_) & 0xFF ] ^ ($crc >> 8) for unpack 'C*', $bytes;
	return $crc ^ 0xFFFFFFFF;
}

sub read_bytes
{
	my ($path, $offset, $length) = @_;
	my $bytes;

	open my $fh, '<:raw', $path or croak "could not open $path: $!";
	sysseek $fh, $offset, SEEK_SET or croak "could not seek in $path: $!";
	(sysread($fh, $bytes, $length) // -1) == $length
	  or croak "could not read $length bytes of $path";
	close $fh;
	return $bytes;
}

sub write_bytes
{
	my ($path, $offset, $bytes) = @_;

	open my $fh, '+<:raw', $path or croak "could not open $path: $!";
	sysseek $fh, $offset, SEEK_SET or croak "could not seek in $path: $!";
	(syswrite($fh, $bytes) // -1) == length $bytes
	  or croak "could not write $path: $!";
	close $fh or croak "could not close $path: $!";
	return;
}

# The fields of a struct in raw bytes, as a hash.
sub unpack_fields
{
	my ($struct, $bytes) = @_;
	my %values;

	$values{ $_->{name} } =
	  unpack $_->{template}, substr $bytes, $_->{offset}, $_->{size}
	  for struct_fields($struct);
	return \%values;
}

sub set_field
{
	my ($struct, $bytes, $name, $value) = @_;
	my ($field) = grep { $_->{name} eq $name } struct_fields($struct);

	croak "no field $name in $struct" if !defined $field;
	substr($bytes, $field->{offset}, $field->{size},
		pack($field->{template}, $value));
	return $bytes;
}

# The first one, unless told where.
sub read_superblock
{
	my ($pool, $at) = @_;
	return unpack_fields('PCacheSuperblock',
		read_bytes($pool, $at // 0, SUPERBLOCK_SIZE));
}

# Write both superblocks as they are.
sub write_superblock
{
	my ($pool, $bytes) = @_;

	write_bytes($pool, $_, $bytes) for 0, COPY_OFFSET;
	return;
}

# Change fields in both superblocks, each with a right CRC.  A value may be
# code, which gets the old one.
sub patch_superblock
{
	my ($pool, %changes) = @_;
	my $bytes = read_bytes($pool, 0, SUPERBLOCK_SIZE);
	my $old = unpack_fields('PCacheSuperblock', $bytes);
	my ($crc) = grep { $_->{name} eq 'crc' } struct_fields('PCacheSuperblock');

	for my $name (sort keys %changes)
	{
		my $value = $changes{$name};

		$value = $value->($old->{$name}) if ref $value eq 'CODE';
		$bytes = set_field('PCacheSuperblock', $bytes, $name, $value);
	}
	$bytes = set_field('PCacheSuperblock', $bytes, 'crc',
		crc32c(substr $bytes, 0, $crc->{offset}));
	write_superblock($pool, $bytes);
	return;
}

# Flip a bit in one byte of a field, in the superblocks at these offsets.
sub damage_superblock
{
	my ($pool, $field, @offsets) = @_;
	my ($f) = grep { $_->{name} eq $field } struct_fields('PCacheSuperblock');

	croak "no field $field in the superblock" if !defined $f;
	for (@offsets)
	{
		my $byte = read_bytes($pool, $_ + $f->{offset}, 1);
		write_bytes($pool, $_ + $f->{offset}, chr(ord($byte) ^ 0x40));
	}
	return;
}

sub read_descriptor
{
	my ($pool, $slot) = @_;
	return unpack_fields('PCacheDescriptor',
		read_bytes($pool, DESCRIPTORS_OFFSET + $slot * DESCRIPTOR_SIZE,
			DESCRIPTOR_SIZE));
}

# Change fields of a descriptor, with a right CRC unless crc is among them.
sub write_descriptor
{
	my ($pool, $slot, %changes) = @_;
	my $offset = DESCRIPTORS_OFFSET + $slot * DESCRIPTOR_SIZE;
	my $bytes = read_bytes($pool, $offset, DESCRIPTOR_SIZE);

	$bytes = set_field('PCacheDescriptor', $bytes, $_, $changes{$_})
	  for sort keys %changes;
	$bytes = set_field('PCacheDescriptor', $bytes, 'crc',
		crc32c(substr $bytes, 8, DESCRIPTOR_SIZE - 12))
	  if !exists $changes{crc};
	write_bytes($pool, $offset, $bytes);
	return;
}

# The slots whose descriptors are sealed, in order; with a filter, those for
# whose descriptor it returns true.
sub sealed_slots
{
	my ($pool, $filter) = @_;
	my $n = read_superblock($pool)->{slots_used};
	my $bytes = read_bytes($pool, DESCRIPTORS_OFFSET, $n * DESCRIPTOR_SIZE);
	my @slots;

	for my $slot (0 .. $n - 1)
	{
		my $raw = substr $bytes, $slot * DESCRIPTOR_SIZE, DESCRIPTOR_SIZE;

		next if unpack('Q', $raw) & 1;
		next
		  if defined $filter
		  && !$filter->(unpack_fields('PCacheDescriptor', $raw));
		push @slots, $slot;
	}
	return @slots;
}

# The two slots of the WAL watermark: flushed, witness, its hash, timeline, CRC.
sub watermarks
{
	my ($pool) = @_;

	return map { [ unpack 'QQQLL', read_bytes($pool, WATERMARK_OFFSET + 32 * $_, 32) ] } 0, 1;
}

1;
