# Copyright (c) 2026, the persistent-cache developers

# pg_hotset and the cache together: a standby that restarts keeps its pages, in
# both modes and after a crash in mode always, and reads only what is missing.
# pg_pcache check tells how warm a promotion would be.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use Test::More;
use Time::HiRes qw(usleep);

my $primary = new_node('primary', mode => undef, init => { allows_streaming => 1 });

$primary->start;
$primary->safe_psql('postgres', <<'EOF');
CREATE EXTENSION pg_hotset;
CREATE EXTENSION pg_buffercache;
CREATE EXTENSION pg_prewarm;
CREATE TABLE hot AS SELECT i, repeat('x', 1500) AS filler FROM generate_series(1, 5000) i;
CREATE TABLE late AS SELECT i, repeat('x', 1500) AS filler FROM generate_series(1, 500) i;
VACUUM (FREEZE);
EOF
$primary->restart;
$primary->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache,pg_hotset'\npg_hotset.interval = 1s\n");
add_pool($standby);
$standby->start;

# How many pages of the table does this server have in shared buffers?
sub pages
{
	my ($node, $table) = @_;

	return $node->safe_psql('postgres',
		"SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('$table') AND relforknumber = 0");
}

sub wait_for_pages
{
	my ($table, $name) = @_;
	my $expected = pages($primary, $table);

	ok( $standby->poll_query_until(
			'postgres', "SELECT count(*) = $expected FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('$table') AND relforknumber = 0"),
		"$name: all $expected pages of $table that the primary has are here");
}

$primary->safe_psql('postgres', "SELECT pg_prewarm('hot') FROM generate_series(1, 3)");
wait_for_pages('hot', 'first start');

foreach my $case (
	[ 'planned_restart', 'clean stop', sub { $standby->stop } ],
	[ 'always', 'clean stop', sub { $standby->stop } ],
	[ 'always', 'kill -9', sub { kill_seen($standby) } ])
{
	my ($mode, $name, $stop) = @$case;
	my ($offset, $valid, $outcome);

	if ($standby->safe_psql('postgres', 'SHOW pcache.mode') ne $mode)
	{
		$standby->stop;
		set_mode($standby, $mode);
		$standby->start;
		wait_for_pages('hot', "$mode, first start");
	}
	$standby->safe_psql('postgres', 'CHECKPOINT');
	$valid = permanent_buffers($standby);
	$stop->();
	# The primary has pages by then that the standby has not.
	$primary->safe_psql('postgres', "SELECT pg_prewarm('late')");
	$offset = log_offset($standby);
	$standby->start;
	$outcome = start_outcome($standby, $offset);
	is($outcome->{start}, 'warm', "$mode, $name: warm") or diag($outcome->{reason});
	cmp_ok($outcome->{kept}, '>=', 0.9 * $valid, "$mode, $name: kept $outcome->{kept} of $valid pages");
	wait_for_pages('hot', "$mode, $name");
	wait_for_pages('late', "$mode, $name");
	cmp_ok($standby->safe_psql('postgres', 'SELECT pages_read FROM pg_stat_hotset'),
		'<', pages($standby, 'hot') / 2, "$mode, $name: only what was missing is read");
	$primary->safe_psql('postgres',
		"SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('late')");
	$standby->safe_psql('postgres',
		"SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('late')");
}

is_clean_standby();

# Nothing in shared buffers differs from the files of the primary.
sub is_clean_standby
{
	$primary->wait_for_replay_catchup($standby);
	is( $standby->safe_psql('postgres', 'SELECT count(*), sum(hashtext(t::text)) FROM hot t'),
		$primary->safe_psql('postgres', 'SELECT count(*), sum(hashtext(t::text)) FROM hot t'),
		'the contents are those of the primary');
}

# What pg_pcache check tells of a promotion.
sub promotion { return verb_json($_[0], 'check')->{promotion} }
sub percent_warm { return $standby->safe_psql('postgres', 'SELECT round(percent_warm::numeric, 1) FROM pg_stat_hotset') }
sub wait_for_list { ok($standby->poll_query_until('postgres', 'SELECT lists > 0 AND compared IS NOT NULL FROM pg_stat_hotset'), $_[0]) }

# A round tells when all pages are here, which is later than they are.
sub wait_for_promotion
{
	my ($name, $percent) = @_;
	my $told;
	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$told = promotion($standby);
		last if $told && (!defined $percent || $told->{percent_warm} == $percent);
		usleep(100_000);
	}
	ok($told && (!defined $percent || $told->{percent_warm} == $percent), $name);
}

is(promotion($primary), undef, 'check: a primary is not promoted');
wait_for_promotion('check: a promotion now would be warm', 100);
$standby->stop;
is(promotion($standby), undef, 'check: a standby that is down is not promoted');
$standby->append_conf('postgresql.conf', "shared_buffers = 4MB\n");
$standby->start;
wait_for_list('a standby with too little memory');
my ($expected, $told);
# another round may come between the two
foreach (1 .. 10)
{
	$expected = percent_warm();
	$told = promotion($standby);
	last if $told && $told->{percent_warm} == $expected;
}
is($told->{percent_warm}, $expected, 'check: the share is that of the view');
cmp_ok($expected, '<', 60, '... and not all');
like($told->{taken}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/, '... and when the list was taken');
my (undef, $out) = pcache($standby, 'check');
like($out, qr/^promotion now: \d+\.\d % warm, by what the primary had at 20\d\d-.*$/m, '... in text, too');
unlike((pcache($primary, 'check'))[1], qr/promotion/, '... which a primary has not');

# A server that was killed has left a share, and the next one has no worker.
wait_for_list('there is a list');
kill_all($standby);
my $share = $standby->data_dir . '/pg_stat_tmp/pg_hotset.share';
ok(-s $share, 'a killed server has left its share');
$standby->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache'\n");
$standby->start;
ok(-s $share, '... which stays without a worker');
is(promotion($standby), undef, '... and check does not take it for that of the server that runs');

# A share does not count if its worker has ended, or if the line is not valid.
for my $case ([ "99.0 $$", 99, 'of a process that runs' ], [ '99.0 ' . dead_pid(), undef, 'of a process that has ended' ],
	[ "101.0 $$", undef, 'that is above 100 %' ], [ "nan $$", undef, 'that is not a number' ], [ '99.0', undef, 'without a PID' ])
{
	my $line = sprintf("%d %d %s\n", time + 100, time, $case->[0]);
	append_to_file("$share.new", $line);
	rename("$share.new", $share) or die "could not rename $share.new: $!";
	my $promotion = promotion($standby);
	is($promotion && $promotion->{percent_warm}, $case->[1], "a share $case->[2]");
}
$standby->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache,pg_hotset'\n");
$standby->restart;
wait_for_list('with a worker again');
wait_for_promotion('... check tells of a promotion');
$standby->promote;
ok($standby->poll_query_until('postgres', "SELECT state = 'primary' FROM pg_stat_hotset"), 'promoted');
is(promotion($standby), undef, '... and check no longer does');

$standby->stop;
$primary->stop;
done_testing();

# Nobody has this PID any more.
sub dead_pid
{
	my $pid = fork() // die "could not fork: $!";
	POSIX::_exit(0) if $pid == 0;
	waitpid($pid, 0);
	return $pid;
}
