
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCacheModule - clusters of an unpatched server that preloads pg_pcache

=head1 SYNOPSIS

  use PCacheModule;

  my $node = module_node('main');      # initialized, not started
  $node->start;
  load_tables($node);
  warm_restart($node, 'a restart');    # stops, asks the oracle, starts, compares

=head1 DESCRIPTION

It exports what "use PCache" exports, as well.

The oracle is a copy of the data directory that was started without the library.  It
tells what is right.

=cut

package PCacheModule;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use File::Path qw(remove_tree);
use PCache;
use PCache::Tables qw($OUR_RELATIONS);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = (
	@PCache::EXPORT, qw(
	  module_node
	  module_settings
	  load_tables
	  change_tables
	  contents
	  oracle
	  warm_pages
	  reads
	  pool_equals_files
	  start_and_compare
	  warm_restart
	  cold_start
	  start_without
	  stop_and_save
	  written_lsn
	  replay_until
	  wait_for_line
	  kill_backend
	  single_user
	  shim
	  on_machine
	  machine_file
	));

=pod

=item module_node(name, %params)

A cluster whose server preloads the library, not started.  Its pool is made by the
first start.

  init       parameters for PostgreSQL::Test::Cluster->init
  libraries  shared_preload_libraries (pg_pcache)
  mode       pcache.mode (planned_restart)
  standby    1 if it is to be a primary with standbys
  conf       more lines for postgresql.conf

=cut

sub module_node
{
	my ($name, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(%{ $params{init} // {} });
	$node->append_conf('postgresql.conf', q{
wal_level = replica
max_wal_senders = 5
max_replication_slots = 5
hot_standby = on
}) if $params{standby};
	module_settings($node, %params);
	return $node;
}

# The same settings for a cluster that is there already.
sub module_settings
{
	my ($node, %params) = @_;

	PCache::Node::configure($node, shared_buffers => '24MB', init_pool => 0, %params, conf => q{
max_connections = 20
log_statement = none
allow_in_place_tablespaces = on
});
	# start_and_compare() says how a start was
	may_go_without($node);
	$node->append_conf('postgresql.conf', $params{conf}) if $params{conf};
	# all tests can be run with the other way to recover
	$node->append_conf('postgresql.conf', "pcache.recovery = $ENV{PCACHE_RECOVERY}") if $ENV{PCACHE_RECOVERY};
	return;
}

# The tables of load_data(), and the extension that looks at indexes.
sub load_tables
{
	my ($node) = @_;

	load_data($node, rows => 10000);
	$node->safe_psql('postgres', 'CREATE EXTENSION amcheck');
	return;
}

my $changes = 0;

# Change the logged tables, each time in another way: heap, toast, indexes, maps.
sub change_tables
{
	my ($node) = @_;

	$changes++;
	$node->safe_psql('postgres', qq{
UPDATE t_heap SET grp = grp + $changes, filler = md5(filler) WHERE id % 13 = $changes % 13;
DELETE FROM t_heap WHERE id % 101 = $changes;
INSERT INTO t_heap SELECT i, i % 97, 'new' FROM generate_series(100000 * $changes, 100000 * $changes + 200) i;
UPDATE t_toast SET doc = doc || 'x' WHERE id % 10 = $changes % 10;
UPDATE t_kinds SET id = id + 1, arr = arr || $changes WHERE id % 17 = $changes % 17;
UPDATE t_unlogged SET filler = filler || 'x' WHERE id % 19 = $changes % 19;
SELECT nextval('t_seq');
VACUUM t_toast});
	return;
}

# How far WAL goes that this node has written.  What the last command did without a
# transaction, as dropping the old files of a database, is flushed first.
sub written_lsn
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, 'test', '')});
	return $node->safe_psql('postgres', 'SELECT pg_current_wal_lsn()');
}

my $replay_until = '0/0';

# From now on, contents() of a standby are those that it has once it has replayed all that
# this node has written.
sub replay_until
{
	my ($node) = @_;

	$replay_until = written_lsn($node);
	return;
}

=pod

=item contents(node)

What the tables have, read in each way there is, and what amcheck finds wrong in all
tables and B-trees of the database, as one text.

=cut

sub contents
{
	my ($node) = @_;
	my @tables = data_tables($node);
	my $persistence = @tables > LOGGED ? q{('p', 'u')} : q{('p')};
	my $sums = join ' UNION ALL ', map {
		"SELECT '$_' AS what, count(*), coalesce(sum(hashtextextended(t::text, 0)), 0) FROM $_ t"
	} @tables;

	$node->poll_query_until('postgres', "SELECT NOT pg_is_in_recovery() OR pg_last_wal_replay_lsn() >= '$replay_until'")
	  or die 'replay does not get on';
	return $node->safe_psql('postgres', qq{
SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;
$sums ORDER BY 1;
SELECT 't_seq', last_value FROM t_seq;
SET enable_seqscan = off; SET enable_indexscan = on; SET enable_indexonlyscan = on;
SELECT 'by key', count(*), sum(hashtextextended(t::text, 0)) FROM t_heap t WHERE id > 0;
SELECT 'toast by key', count(*), sum(hashtextextended(doc, 0)) FROM t_toast WHERE id > 0;
SELECT 'index only', count(*), sum(grp) FROM (SELECT grp FROM t_heap WHERE grp >= 0 OFFSET 0) s;
SELECT 'hash', count(*), sum(id) FROM t_kinds WHERE id = 777;
SET enable_bitmapscan = on; SET enable_indexscan = off; SET enable_indexonlyscan = off;
SELECT 'gin', count(*), sum(id) FROM t_kinds WHERE arr @> ARRAY[3];
SELECT 'gist or spgist', count(*), sum(id) FROM t_kinds WHERE p <@ box '((0,-500),(500,0))';
SELECT 'brin', count(*), sum(id) FROM t_kinds WHERE id BETWEEN 100 AND 300;
RESET ALL;
SELECT 'indexes', count(*), count(bt_index_check(c.oid, c.relnamespace = 'public'::regnamespace)) FROM pg_class c JOIN pg_am a ON a.oid = c.relam
  WHERE a.amname = 'btree' AND c.relkind = 'i' AND c.relpersistence IN $persistence;
SELECT c.relname, v.* FROM pg_class c, verify_heapam(c.oid) v
  WHERE c.relkind IN ('r', 't') AND c.relpersistence IN $persistence});
}

# A copy of a data directory that no server uses, but for template0 and template1, to
# which nobody connects.
sub copy_cluster
{
	my ($data, $copy) = @_;

	mkdir $copy, 0700 or die "could not create $copy: $!";
	mkdir "$copy/base", 0700;
	system_or_bail('cp', '-a', (grep { !m{/(base|postmaster\.pid)$} } glob "$data/*"), $copy);
	system_or_bail('cp', '-a', (grep { !m{/[14]$} } glob "$data/base/*"), "$copy/base");
	return;
}

# What the contents of a node that is down would be after a start without the library.
# Another query than contents() may be given as code, and options of the server.
sub oracle
{
	my ($node, %params) = @_;
	my $copy = $node->basedir . '/oracle';
	my $code = $params{code} // \&contents;
	my $options = $params{options} // '';
	my $result;

	local %ENV = $node->_get_env();
	copy_cluster($node->data_dir, $copy);
	# a standby of the node must not stream what only the copy writes
	unlink "$copy/pg_hba.conf";
	append_to_file("$copy/pg_hba.conf", "local all all trust\n");
	system_log('pg_ctl', '-D' => $copy, '-l' => $node->logfile . '.oracle', '-w',
		'-o' => "-c shared_preload_libraries='' -c pcache.mode=off $options", 'start') == 0
	  or die 'a copy without the library does not start';
	$result = $code->($node);
	system_or_bail('pg_ctl', '-D' => $copy, '-m' => 'immediate', '-w', 'stop');
	remove_tree($copy);
	return $result;
}

# Read all of our relations into shared buffers, and the catalogs that contents() asks
# for.  Returns the number of valid buffers.
sub warm_pages
{
	my ($node) = @_;

	$node->safe_psql('postgres', "SELECT sum(pg_prewarm(rel)) FROM ($OUR_RELATIONS) r");
	contents($node);
	reads($node);
	return valid_buffers($node);
}

# How many pages a new session has to read for our tables, catalogs included.
sub reads
{
	my ($node) = @_;
	my $plans = join "\n", map {
		$node->safe_psql('postgres',
			"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) SELECT count(*) FROM $_")
	} data_tables($node);
	my $reads = 0;

	$reads += $1 while $plans =~ /^[^\n]*Buffers: [^\n]*shared[^\n]*?read=(\d+)/mg;
	return $reads;
}

# The file of an entry's segment, and where in it the page is.
sub file_of
{
	my ($node, $e) = @_;
	my $name = $e->{rel_number} . ('', '_fsm', '_vm', '_init')[ $e->{fork_number} ];
	my $segment = int($e->{block_number} / 131072);
	my ($version) = $e->{spc_oid} <= 1664 ? '' : map { s{.*/}{}r } glob $node->data_dir . "/pg_tblspc/$e->{spc_oid}/PG_*";
	my $directory = $e->{spc_oid} == 1663 ? "base/$e->{db_oid}"
	  : $e->{spc_oid} == 1664 ? 'global'
	  : "pg_tblspc/$e->{spc_oid}/$version/$e->{db_oid}";

	return ($node->data_dir . "/$directory/$name" . ($segment ? ".$segment" : ''),
		($e->{block_number} % 131072) * BLCKSZ);
}

# A test: the pages that were saved in a node's pool equal the files, but for checksums.
# Free space maps are changed without being dirty, and so are pages that an index has
# initialized for later: their files have zeros, and they no LSN.  On a standby, hints are
# set so: with hints => 1, only the page's header is compared.  Returns the number of pages.
sub pool_equals_files
{
	my ($node, $name, %params) = @_;
	my $pool = pool_file($node);
	my $sb = read_superblock($pool);
	my $blocks = read_bytes($pool, $sb->{blocks_offset}, $sb->{slots_used} * BLCKSZ);
	my (@different, %files);
	my $n = 0;

	is($sb->{state}, STATE_CLEAN, "$name: the pool is clean");
	for my $e (pool_entries($pool))
	{
		my ($path, $at) = file_of($node, $e);
		my ($page, $stored);

		next if $e->{fork_number} == 1;
		$n++;
		$files{$path} //= -e $path ? slurp_file($path) : '';
		$page = substr $blocks, $e->{slot} * BLCKSZ, BLCKSZ;
		$stored = $at < length $files{$path} ? substr $files{$path}, $at, BLCKSZ : '';
		$_ = substr $_, 0, $params{hints} ? 24 : BLCKSZ for $page, $stored;
		length $_ and substr($_, 8, $params{hints} ? 4 : 2) = '' for $page, $stored;
		next if $stored =~ /^\0+$/ && $page =~ /^\0{8}/;
		push @different, "$path block $e->{block_number}" if $page ne $stored;
	}
	is(scalar @different, 0, "$name: the $n pages of the pool equal the files")
	  or diag(join "\n", grep { defined } @different[ 0 .. 9 ]);
	return $n;
}

# Wait until a file has a line, and return it.
sub wait_for_line
{
	my ($path) = @_;

	for (1 .. 100 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return slurp_file($path) =~ s/\n.*//sr if -e $path && slurp_file($path) =~ /\n/;
		select undef, undef, undef, 0.01;
	}
	die "no line in $path";
}

# Kill a session of a node with restart_after_crash, and wait until the server has begun
# again, warm, or cold, for that reason if a pattern is given.  Returns how long the log was
# before.
sub kill_backend
{
	my ($node, $reason, $signal) = @_;
	my $why = $reason // '';
	my $how = $why eq 'warm' ? qr/kept \d+ of/ : qr/starting cold: $why/;
	my $offset = log_offset($node);
	my $psql = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $psql->query('SELECT pg_backend_pid()');

	kill $signal // 'KILL', $pid;
	eval { $psql->quit };
	$node->wait_for_log(qr/persistent cache: $how.*database system is ready to accept connections/s, $offset);
	wait_until_back($node);
	return $offset;
}

# Run SQL in single-user mode, for which the library does nothing.
sub single_user
{
	my ($node, $sql) = @_;
	my ($out, $err);

	local %ENV = $node->_get_env();
	IPC::Run::run([ 'postgres', '--single', '-j', '-D' => $node->data_dir, 'postgres' ], '<' => \$sql, '>' => \$out, '2>' => \$err)
	  or die "single-user mode failed: $err";
	unlike($err, qr/persistent cache: (kept|saved)/, 'single-user mode has no pool');
	return;
}

# A shim of that name, built for LD_PRELOAD.
my %shims;

sub shim
{
	my ($name) = @_;

	if (!defined $shims{$name})
	{
		$shims{$name} = PostgreSQL::Test::Utils::tempdir() . "/$name.so";
		system_or_bail('cc', '-O2', '-shared', '-fPIC', '-o' => $shims{$name}, "$ENV{PCACHE_ROOT}/tests/module/shims/$name.c", '-ldl');
	}
	return $shims{$name};
}

# Run code on another machine than this one, as shims/machine.c has it, with the variables
# that it reads.  A server that is started there stays there.
sub on_machine
{
	my ($variables, $code) = @_;

	local %ENV = (%ENV, %$variables, LD_PRELOAD => shim('machine'));
	return $code->();
}

# Write a file of such a machine, below the directory that MACHINE_FILES names.
sub machine_file
{
	my ($files, $path, $text) = @_;

	system_or_bail('mkdir', '-p', "$files$path" =~ s{/[^/]*$}{}r);
	unlink "$files$path";
	append_to_file("$files$path", $text);
	return;
}

# Stop the node, and see whether it has saved what was valid, given as a number of
# pages: dirty ones are none after a shutdown checkpoint.  Returns what it saved.
sub stop_and_save
{
	my ($node, $valid, $name) = @_;
	my $offset = log_offset($node);
	my ($saved) = ($node->stop, slurp_file($node->logfile, $offset) =~ /persistent cache: saved (\d+) pages in /)[-1];

	cmp_ok($saved // 0, '>=', 0.999 * $valid, "$name: saved " . ($saved // 0) . " of $valid pages");
	return $saved // 0;
}

# A test: start a node that is down.  Its contents must be those that the oracle tells
# before, unless it has been asked: right => contents.  Returns the outcome.
sub start_and_compare
{
	my ($node, $name, %params) = @_;
	my $right = $params{right} // oracle($node);
	my $offset = log_offset($node);
	my $outcome;

	$node->start;
	$outcome = start_outcome($node, $offset);
	is(contents($node), $right, "$name: contents are right");
	unlike($outcome->{log}, qr/PANIC|invalid page|TRAP|was terminated by signal/, "$name: nothing is wrong in the log");
	return $outcome;
}

# A test: a running node is stopped and started, and all that it has saved is kept.
# Nothing that was cached is read, and contents are right.  Parameters are those of
# pool_equals_files().  Returns the outcome.
sub warm_restart
{
	my ($node, $name, %params) = @_;
	my $valid = warm_pages($node);
	my $saved = stop_and_save($node, $valid, $name);
	my $right = oracle($node);
	my $offset = log_offset($node);
	my ($outcome, $read);

	pool_equals_files($node, $name, %params);
	$node->start;
	$read = reads($node);
	$outcome = is_warm($node, $offset, $valid, $name);
	is($outcome->{kept}, $saved, "$name: kept what was saved");
	is($outcome->{saved}, $saved, "$name: found what was saved");
	is($read, 0, "$name: nothing is read");
	is(contents($node), $right, "$name: contents are right");
	return $outcome;
}

# A test: start a node that is down: nothing is kept, with that reason (a pattern) in the
# log, and contents are right, as for start_and_compare().  Returns the outcome.
sub cold_start
{
	my ($node, $reason, $name, %params) = @_;
	my $outcome = start_and_compare($node, $name, %params);

	is($outcome->{start}, 'cold', "$name: cold");
	like($outcome->{reason} // $outcome->{log}, $reason, "$name: for the right reason");
	return $outcome;
}

# A test: start a node that is down: it runs without the pool, with that warning (a
# pattern), and with the right contents.  Returns the log.
sub start_without
{
	my ($node, $warning, $name, %params) = @_;
	my $log = start_and_compare($node, $name, %params)->{log};

	like($log, qr/WARNING:  [^\n]*$warning/, "$name: a warning");
	like($log, qr/DETAIL:  The server starts without the persistent cache\./, "$name: without the pool");
	unlike($log, qr/persistent cache: (kept|starting cold)/, "$name: nothing is kept");
	return $log;
}

1;
