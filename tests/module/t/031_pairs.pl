
# Copyright (c) 2026, the persistent-cache developers

# Two events, one after the other, and then a start, in mode always: docs/events.md says for
# each pair whether that start is warm, and if not, why.  Each answer must be that of a start
# without the library, too.
#
# A short list of pairs is tried, and with PCACHE_PAIRS=all each one.  Then the table is
# printed as the page should have it.  PCACHE_PAIRS=first,second tries one pair, and
# PCACHE_PAIRS=first what comes after that event alone.
#
# The first event happens to a warm server, which works.  An event of a server that is down
# has it shut down cleanly before, if it runs.  One of a server that runs has it started before,
# if it is down, and then it works.  After the last event the server is started, after a clean
# stop if it runs; if that event is itself about a start, as a promotion is, that one counts.

use strict;
use warnings FATAL => 'all';

use PCacheKilled;
use PCacheModule;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# those that were taken, and are not in use
my @snapshots;
# How each event is called, and whether it is one of a server that runs ("up") or not ("down").
my @events = (
	[ 'clean stop', 'up', sub { $_[0]->stop } ],
	[ 'immediate stop', 'up', sub { seen(); $_[0]->stop('immediate') } ],
	[ 'kill -9', 'up', sub { seen(); kill_all($_[0]) } ],
	[ 'one session killed', 'up', \&killed_session ],
	[ 'read errors', 'up', sub { $_[0]->safe_psql('postgres', 'SET zero_damaged_pages = on') } ],
	[ 'power loss', 'up', sub { seen(); kill_all($_[0]); unlink pool_file($_[0]) } ],
	[ 'promotion', 'down', \&promotion ],
	[ 'pg_rewind', 'down', \&rewind ],
	[ 'old backup', 'down', sub { replace_data($_[0], $_[0]->backup_dir . '/b') } ],
	[ 'snapshot', 'down', sub { exchange($_[0], shift @snapshots) } ],
	[ 'pg_resetwal', 'down', sub { unlink $_[0]->data_dir . '/postmaster.pid'; system_or_bail('pg_resetwal', '-f', $_[0]->data_dir) } ],
	[ 'stock run', 'down', sub { stock_start($_[0], '-w'); work(); stock_stop($_[0], 'fast') } ],
	[ 'single user', 'down', sub { single_user($_[0], 'SELECT 1') } ],
	[ 'shared_buffers', 'down', sub { $_[0]->append_conf('postgresql.conf', 'shared_buffers = 20MB') } ],
	[ 'mode', 'down', sub { $_[0]->append_conf('postgresql.conf', 'pcache.mode = planned_restart') } ]);
my @names = map { $_->[0] } @events;
my %needs = map { $_->[0] => $_->[1] } @events;
my %code = map { $_->[0] => $_->[2] } @events;

my $page = "$ENV{PCACHE_ROOT}/docs/events.md";
my $node = module_node('main', mode => 'always', standby => 1, shared_buffers => '16MB', init => { extra => ['--data-checksums'] },
	conf => "restart_after_crash = on\nfsync = off\n");
my $initial = $node->basedir . '/initial';
my $source = $node->basedir . '/source';
my $changes = 0;
# the outcome of the last start
my $outcome;

sub change { $changes++; return "UPDATE t SET v = v + $changes WHERE id % 11 = $changes % 11; DELETE FROM t WHERE id = $changes" }

# What the tables have, once all is replayed.
sub rows
{
	return $_[0]->safe_psql('postgres', q{SELECT count(*), sum(v), sum(hashtext(filler)) FROM t;
SET enable_seqscan = off; SELECT count(*), sum(v) FROM t WHERE id > 0});
}

# The server is warm, and has changed pages, of which some are older than the last checkpoint.
# A standby cannot change any.
sub work
{
	my $standby = $node->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 't';

	$node->safe_psql('postgres', change() . ($_[0] // '')) if !$standby;
	$node->safe_psql('postgres', q{SELECT pg_prewarm('t'), pg_prewarm('t_pkey')});
	rows($node);
	return;
}

# The worker of mode always has seen all that was done; there is none in the other mode.
sub seen
{
	wait_for_sighting($node) if $node->safe_psql('postgres', 'SHOW pcache.mode') eq 'always';
	return;
}

sub replace_data
{
	my ($to, $from) = @_;

	system_or_bail('rm', '-rf', $to->data_dir);
	system_or_bail('cp', '-a', $from, $to->data_dir);
	return;
}

# Start a node that is down, and say how that was: nothing else than after a start without
# the library is to be seen.
sub start_is_right
{
	my ($name) = @_;
	my $right = oracle($node, code => \&rows);

	$node->start;
	is(rows($node), $right, "$name: contents are right");
	return how_it_was();
}

# warm, or the reason, by the names of pg_pcache_pool
sub how_it_was
{
	my ($start, $reason) = split /\|/, $node->safe_psql('postgres', 'SELECT last_start, last_start_reason FROM pg_pcache_pool');

	return $outcome = $start eq 'warm' ? 'warm' : $start eq 'cold' ? $reason : $start;
}

sub killed_session
{
	my $psql = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $psql->query('SELECT pg_backend_pid()');
	my $right = rows($node);
	my $offset = log_offset($node);

	seen();
	kill 'KILL', $pid;
	eval { $psql->quit };
	$node->wait_for_log(qr/database system is ready to accept (?:read-only )?connections/, $offset);
	wait_until_back($node);
	is(rows($node), $right, 'a session was killed: contents are right');
	how_it_was();
	return;
}

sub promotion
{
	my $name = 'to be promoted';

	append_to_file($node->data_dir . '/standby.signal', '');
	start_is_right($name);
	my $right = rows($node);
	$node->promote;
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'no promotion';
	is(rows($node), $right, 'promoted: contents are right');
	return;
}

# The data directory follows a server that has gone on from the beginning of this one, on another
# timeline.
sub rewind
{
	system_or_bail('pg_rewind', '--no-sync', '--source-pgdata' => $source, '--target-pgdata' => $node->data_dir);
	append_to_file($node->data_dir . '/standby.signal', '');
	return;
}

# Have the server run, or not.
sub bring
{
	my ($state, $name) = @_;
	my $runs = defined $node->{_pid};

	if ($state eq 'down') { $node->stop if $runs }
	elsif (!$runs)
	{
		start_is_right("$name: in between");
		work();
	}
	return;
}

# What the start after two events is like; undef stands for no second one.
sub pair
{
	my ($first, $second) = @_;
	my $name = join ', ', grep { defined } $first, $second;

	$node->stop('immediate') if defined $node->{_pid};
	replace_data($node, $initial);
	unlink pool_file($node);
	$node->start;
	work('; CHECKPOINT');
	work();
	for my $n (1 .. grep { ($_ // '') eq 'snapshot' } $first, $second)
	{
		push @snapshots, $node->basedir . "/snapshot$n";
		wait_for_sighting($node);
		frozen_copy($node, $snapshots[-1]);
		work();
	}
	for my $event (grep { defined } $first, $second)
	{
		bring($needs{$event}, $name);
		$outcome = undef;
		$code{$event}->($node);
	}
	return $outcome if defined $outcome;
	bring('down', $name);
	return start_is_right($name);
}

# What cannot be: WAL that is needed is gone, or of wal_level minimal, or the program refuses.
sub impossible
{
	my ($first, $second) = ($_[0], $_[1] // '');

	return $second eq 'pg_rewind' && $first =~ /^(?:pg_rewind|pg_resetwal)$/ ||
	  $second eq 'pg_resetwal' && $first =~ /^(?:pg_rewind|old backup)$/ ||
	  $second eq 'single user' && $first eq 'pg_rewind' ||
	  $second eq 'promotion' && $first eq 'pg_resetwal';
}

# The table of the page: first event, second one => what it says.
sub documented
{
	my %cells;
	my @columns;

	for my $line (split /\n/, slurp_file($page))
	{
		my (undef, $first, @cells) = split / *\| */, $line;

		if (!@columns) { @columns = @cells if ($first // '') eq 'first' }
		elsif (defined $first && exists $needs{$first}) { @cells{ map { "$first,$_" } @columns } = @cells }
	}
	return \%cells;
}

# ---------------------------------------------------------------------------
$node->start;
$node->safe_psql('postgres', q{CREATE EXTENSION pg_pcache; CREATE EXTENSION pg_prewarm;
CREATE TABLE t (id int PRIMARY KEY, v int, filler text);
INSERT INTO t SELECT i, 0, repeat(md5(i::text), 6) FROM generate_series(1, 5000) i;
VACUUM (ANALYZE) t; CHECKPOINT});
$node->backup('b');
$node->stop;
system_or_bail('cp', '-a', $node->data_dir, $initial);
# Timeline 2 is that of a server that is promoted once.
for (1 .. 2)
{
	append_to_file($node->data_dir . '/standby.signal', '');
	stock_start($node, '-w');
	{
		local %ENV = $node->_get_env();
		system_or_bail('pg_ctl', '-D' => $node->data_dir, '-w', 'promote');
	}
	$node->safe_psql('postgres', change());
	stock_stop($node, 'fast');
}
rename $node->data_dir, $source or die;

my $wanted = $ENV{PCACHE_PAIRS} // '';
my @pairs = $wanted eq 'all' ? (map { my $first = $_; map { [ $first, $_ ] } undef, @names } @names) : map { [ split /,/ ] } $wanted ne '' ? $wanted : (
	'clean stop', 'clean stop,single user', 'clean stop,snapshot', 'clean stop,shared_buffers',
	'kill -9', 'kill -9,kill -9', 'kill -9,stock run', 'kill -9,promotion', 'kill -9,pg_resetwal', 'kill -9,mode', 'kill -9,pg_rewind',
	'immediate stop,snapshot', 'one session killed,kill -9', 'read errors,kill -9', 'power loss,clean stop', 'promotion,kill -9',
	'old backup,kill -9', 'snapshot,one session killed', 'pg_rewind,promotion', 'mode,kill -9');
my $documented = documented();
my %found;

for my $pair (@pairs)
{
	my $key = join ',', $pair->[0], $pair->[1] // 'alone';

	$found{$key} = impossible(@$pair) ? '-' : pair(@$pair);
	is($found{$key}, $documented->{$key}, "docs/events.md: $key");
}
$node->stop('immediate') if defined $node->{_pid};
if ($wanted eq 'all')
{
	diag(join '', map { '| ' . join(' | ', @$_) . " |\n" } [ 'first', 'alone', @names ], [ ('---') x (@names + 2) ],
		map { my $first = $_; [ $first, map { $found{"$first,$_"} } 'alone', @names ] } @names);
}
done_testing();
