
# Copyright (c) 2026, the persistent-cache developers

# How many instructions a start takes for a page, and a backend for a transaction, as callgrind
# counts them in user space.  They hardly depend on the machine, so they can have bounds.

use strict;
use warnings FATAL => 'all';

use IPC::Run;
use PCache::Crash qw(:DEFAULT wait_for_death);
use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

# A start's for a page: 487 and 635 on Debian's 15.20, 453 and 579 on 18.6.  Most of them are
# those of PostgreSQL's BufTableInsert().
use constant { CLEAN => 540, KILLED => 700 };
# A backend's with the library, in relation to those without it.
use constant TRANSACTION => 1.01;

plan skip_all => 'valgrind is not installed' if !grep { -x "$_/valgrind" } split /:/, $ENV{PATH};

my $node = module_node('main', mode => 'always', conf => q{
shared_buffers = 64MB
autovacuum = off
full_page_writes = off
bgwriter_lru_maxpages = 0
fsync = off
log_connections = on
});
my $files = PostgreSQL::Test::Utils::tempdir();
my $log = $node->logfile;

# The number of instructions that these processes have executed where it was asked for.
sub instructions
{
	my ($sum, $n) = (0, 0);

	for my $file (@_)
	{
		$sum += $1 and $n++ if slurp_file($file) =~ /^totals: (\d+)$/m;
	}
	return $n ? $sum : undef;
}

# Start the server in valgrind, call the code, and stop it.  Returns the instructions of the
# postmaster within PCacheStartServer().
sub counted
{
	my ($code) = @_;
	my $offset = log_offset($node);
	my ($server, $pid);

	unlink glob "$files/*";
	unlink $node->data_dir . '/postmaster.pid';
	{
		local %ENV = $node->_get_env();
		$server = IPC::Run::start([ 'valgrind', '-q', '--tool=callgrind', "--callgrind-out-file=$files/%p",
				'--toggle-collect=PCacheStartServer', '--toggle-collect=PostgresMain',
				'postgres', '-D', $node->data_dir ], '<' => \undef, '>>' => $log, '2>>' => $log);
	}
	# each connection would be slow
	$node->wait_for_log(qr/database system is ready to accept connections/, $offset);
	$pid = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	$code->() if $code;
	kill 'INT', $pid;
	$server->finish or die 'the server does not stop';
	return instructions("$files/$pid");
}

# How many instructions its backend takes for a transaction of pgbench.
sub transaction_takes
{
	my @run = ([ 'warm', 20 ], [ 'few', 100 ], [ 'many', 500 ]);
	my %n;

	counted(sub {
		# whether they are read must not matter
		$node->safe_psql('postgres', q{SELECT sum(pg_prewarm(oid)) FROM pg_class WHERE relkind IN ('r', 'i', 't')});
		for (@run)
		{
			my ($name, $transactions) = @$_;
			my $offset = log_offset($node);
			my @pids;

			$node->command_ok([ 'pgbench', '-n', '-S', '-M', 'prepared', '--random-seed=1', '-t', $transactions, 'postgres' ], "$name: pgbench");
			# whoever has ended has written what it did
			@pids = slurp_file($log, $offset) =~ /\[(\d+)\] .*connection received/g;
			wait_for_death(@pids);
			$n{$name} = instructions(map { "$files/$_" } @pids);
		}
	});
	return ($n{many} - $n{few}) / 400;
}

# The pages that a start keeps, and what it takes in all.
sub start_takes
{
	my ($name) = @_;
	my $offset = log_offset($node);
	my $n = counted();
	my $outcome = start_outcome($node, $offset);

	is($outcome->{start}, 'warm', "$name: warm") or diag($outcome->{log});
	note("$name: $n instructions for $outcome->{kept} pages");
	return [ $outcome->{kept}, $n ];
}

# After a kill, and after a clean stop.
sub both_starts
{
	my ($name, $sql) = @_;

	$node->start;
	$node->safe_psql('postgres', $sql);
	kill_seen($node);
	return map { start_takes("$name, $_") } 'after a kill', 'after a clean stop';
}

my @few = both_starts('few pages', 'CREATE EXTENSION pg_prewarm; CHECKPOINT');
my @many = both_starts('many pages', q{
CREATE TABLE t WITH (fillfactor = 10) AS SELECT i AS id, repeat('x', 500) AS s FROM generate_series(1, 6000) i;
VACUUM FREEZE t;
SELECT pg_prewarm('t');
CHECKPOINT});

for my $i (0, 1)
{
	my $name = ('after a kill', 'after a clean stop')[$i];
	my $pages = $many[$i][0] - $few[$i][0];
	my $each = ($many[$i][1] - $few[$i][1]) / ($pages || 1);

	cmp_ok($pages, '>', 4000, "$name: $pages more pages");
	cmp_ok($each, '<', (KILLED, CLEAN)[$i], sprintf '%s: %.0f instructions for each', $name, $each);
	cmp_ok($each, '>', 50, "$name: they were counted");
}

# In a transaction nothing is done by the library.
$node->start;
$node->command_ok([ 'pgbench', '-i', '-q', '-s', 1, 'postgres' ], 'the tables of pgbench');
$node->safe_psql('postgres', 'VACUUM FREEZE; CHECKPOINT');
$node->stop;
my $with = transaction_takes();
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', q{''});
my $without = transaction_takes();
cmp_ok($without, '>', 1000, sprintf 'a transaction takes %.0f instructions without the library', $without);
cmp_ok($with / $without, '<', TRANSACTION, sprintf 'and %.0f with it', $with);
done_testing();
