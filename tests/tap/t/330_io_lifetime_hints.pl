
# Copyright (c) 2026, the persistent-cache developers

# io_lifetime_hints: each kind of file has its hint while a server has it open,
# after it was reopened and recycled as well; the pool and what is not written
# much have none.  The kernel is asked, for all 64 bits.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# From <linux/fcntl.h>; the values are those of <linux/rw_hint.h>.
use constant { F_GET_RW_HINT => 1035, F_SET_RW_HINT => 1036 };
use constant { NOT_SET => 0, SHORT => 2, LONG => 4, EXTREME => 5 };

# The hint of a file, or undef if the kernel has none to tell.
sub hint
{
	my ($path) = @_;
	my $buffer = pack('Q', ~0);

	open(my $fh, '<', $path) or die "$path: $!";
	my $told = fcntl($fh, F_GET_RW_HINT, $buffer);
	close $fh;
	return $told ? unpack('Q', $buffer) : undef;
}

sub set_hint
{
	my ($fh, $hint) = @_;
	my $buffer = pack('Q', $hint);

	return fcntl($fh, F_SET_RW_HINT, $buffer);
}

{
	my $file = PostgreSQL::Test::Utils::tempdir() . '/probe';
	append_to_file($file, 'x');
	open(my $fh, '+<', $file) or die;
	plan(skip_all => 'this kernel has no write lifetime hints')
	  if !set_hint($fh, LONG) || (hint($file) // 0) != LONG;
}

my $space = PostgreSQL::Test::Utils::tempdir();
my $node = new_node('main', mode => has_cache() ? 'planned_restart' : undef, conf => "io_lifetime_hints = on\nwork_mem = 64kB\nmax_files_per_process = 64\nlog_temp_files = 0\nsummarize_wal = off\n");
my $data = $node->data_dir;

$node->start;
like(slurp_file($node->logfile), qr/LOG:  write lifetime hints: base on [^;]*: accepted[^;]*; pg_wal on /, 'the log says what the file systems do');
is(scalar(() = slurp_file($node->logfile) =~ /write lifetime hints/g), 1, 'in one line');

$node->safe_psql('postgres', "CREATE TABLESPACE space LOCATION '$space'");
$node->safe_psql('postgres', q{
CREATE TABLE t AS SELECT i, repeat('x', 100) x FROM generate_series(1, 20000) i;
CREATE INDEX t_i ON t (i);
CREATE UNLOGGED TABLE u AS SELECT i FROM generate_series(1, 2000) i;
CREATE TABLE s TABLESPACE space AS SELECT i FROM generate_series(1, 2000) i;
CREATE UNLOGGED TABLE su TABLESPACE space AS SELECT i FROM generate_series(1, 2000) i;
VACUUM t, u;
CHECKPOINT});

sub path { return "$data/" . $node->safe_psql('postgres', "SELECT pg_relation_filepath('$_[0]')") }

my %expected = (
	t => EXTREME,
	t_i => EXTREME,
	s => EXTREME,
	u => LONG,
	su => LONG,
	pg_class => EXTREME,
	pg_database => EXTREME);
is(hint(path($_)), $expected{$_}, "relation $_") for sort keys %expected;
is(hint(path('t') . $_), EXTREME, "fork $_") for qw(_fsm _vm);
is(hint(path('u') . $_), LONG, "unlogged: $_") for qw(_init);

# temporary tables, and temporary files while they are there
my $session = $node->background_psql('postgres');
$session->query_safe("CREATE TEMP TABLE tt AS SELECT i FROM generate_series(1, 5000) i");
my $temp = $session->query_safe("SELECT pg_relation_filepath('tt')");
is(hint("$data/$temp"), SHORT, 'temporary table');
$session->query_safe("BEGIN; DECLARE c CURSOR FOR SELECT * FROM generate_series(1, 200000) i ORDER BY -i; FETCH 1 FROM c");
my @files = glob "$data/base/pgsql_tmp/pgsql_tmp*";
cmp_ok(scalar @files, '>', 0, 'there are temporary files');
is(hint($_), SHORT, "temporary file $_") for grep { -f } @files;
$session->query_safe('ROLLBACK');
$session->quit;

# WAL, of a new segment and of recycled ones
sub current_segment { return "$data/pg_wal/" . $node->safe_psql('postgres', 'SELECT pg_walfile_name(pg_current_wal_insert_lsn())') }
is(hint(current_segment()), SHORT, 'WAL segment');
for (1 .. 4)
{
	$node->safe_psql('postgres', 'INSERT INTO t SELECT i FROM generate_series(1, 1000) i; SELECT pg_switch_wal(); CHECKPOINT');
}
$node->safe_psql('postgres', 'INSERT INTO t VALUES (1)');
is(hint(current_segment()), SHORT, 'recycled WAL segment');

# The hint is set again when a virtual file descriptor is reopened: take it away
# while the file is closed.
{
	my $many = join(';', map { "CREATE TABLE m$_ (i int); INSERT INTO m$_ VALUES (1)" } 1 .. 100);
	my $reader = $node->background_psql('postgres');
	$reader->query_safe($many);
	my $path = "$data/" . $reader->query_safe("SELECT pg_relation_filepath('m1')");
	$node->safe_psql('postgres', 'CHECKPOINT');
	open(my $fh, '+<', $path) or die;
	ok(set_hint($fh, NOT_SET), 'hint taken away');
	is(hint($path), NOT_SET, 'it is gone');
	$reader->query_safe(join(';', map { "INSERT INTO m$_ SELECT generate_series(1, 2000)" } 1 .. 100));
	is(hint($path), EXTREME, 'it is back once the file was opened again');
	$reader->quit;
}

SKIP:
{
	skip 'built without the cache', 1 if !has_cache();
	is(hint(pool_file($node)), NOT_SET, 'the pool has none');
}
is(hint("$data/global/pg_control"), NOT_SET, 'pg_control has none');
is(hint("$data/postmaster.pid"), NOT_SET, 'nor has the lock file');
$node->stop;

# off: nothing is set, and nothing is said
$node->append_conf('postgresql.conf', "io_lifetime_hints = off\n");
my $offset = log_offset($node);
$node->start;
$node->safe_psql('postgres', 'CREATE TABLE o AS SELECT 1; CHECKPOINT');
is(hint(path('o')), NOT_SET, 'off: no hint');
unlike(slurp_file($node->logfile, $offset), qr/write lifetime hints/, 'off: no line in the log');
is($node->safe_psql('postgres', "SELECT context FROM pg_settings WHERE name = 'io_lifetime_hints'"), 'postmaster', 'only at server start');
$node->stop;

done_testing();
