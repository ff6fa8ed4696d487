
# Copyright (c) 2026, the persistent-cache developers

# A standby that has followed its primary to another timeline, and crashed
# before a restartpoint told pg_control: pg_pcache verify looks for the newest
# timeline as the server does.

use strict;
use warnings FATAL => 'all';

use Cwd;
use File::Basename qw(dirname);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', mode => undef,
	init => { allows_streaming => 1 }, conf => "wal_keep_size = 320MB\nsynchronous_commit = on");

$primary->start;
load_data($primary);
$primary->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
$primary->backup('b');

my $next = PostgreSQL::Test::Cluster->new('next');
$next->init_from_backup($primary, 'b', has_streaming => 1);
$next->start;

my $standby = new_standby('standby', $primary, 'b', mode => 'always');
$standby->start;
$primary->wait_for_replay_catchup($standby);
$primary->wait_for_replay_catchup($next);
$primary->stop;
$next->promote;
$standby->enable_streaming($next);
$standby->reload;

# no restartpoint comes in between: pg_control is on the old timeline
for my $goal (undef, 'latest', 2)
{
	my $name = $goal // 'default';
	my ($expected, $valid, $crash_now);

	if (defined $goal)
	{
		$standby->append_conf('postgresql.conf', "recovery_target_timeline = '$goal'");
		$standby->restart;
	}
	$next->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 7 = 1');
	$expected = checksums($next, tables => [LOGGED]);

	# Reading them prunes pages, and nothing flushes that WAL.  It must not come
	# to the standby after the seal.
	$next->safe_psql('postgres', q{SELECT pg_logical_emit_message(false, 'flush', '', true)});
	$next->wait_for_replay_catchup($standby);
	warm_up($standby);
	$standby->safe_psql('postgres', 'SELECT pg_pcache_seal()');
	$valid = permanent_buffers($standby);
	# it asks the same gates about a crash that happens now
	$crash_now = $standby->safe_psql('postgres', 'SELECT warm, reason FROM pg_pcache_next_start($$crash$$)');
	is($crash_now, 't|warm', "$name: pg_pcache_next_start() says warm");
	kill_all($standby);
	my ($control) = run_command([ 'pg_controldata', $standby->data_dir ]);
	if (!defined $goal)
	{
		like($control, qr/Latest checkpoint's TimeLineID:\s+1\n/, "$name: the last restartpoint is on the old timeline");
		like($control, qr/Min recovery ending loc's timeline:\s+1\n/, "$name: and so is minRecoveryPoint");
	}
	warm_after_crash($standby, $valid, $name, ratio => 0.95);
	contents_right($standby, $expected, $name);
}

# Told to stay where pg_control is, or on another timeline, it would drop the
# pages of the new one: verify says so.  What the server would say of a
# crashed standby that turns back does not matter here.
$standby->safe_psql('postgres', 'SELECT pg_pcache_seal()');
kill_all($standby);
$standby->append_conf('postgresql.conf', "recovery_target_timeline = '1'");
my $verdict = verify_json($standby);
is($verdict->{rc}, 2, 'the old timeline: cold');
is($verdict->{reason}, 'timeline', 'the old timeline: for that reason');
like($verdict->{detail}, qr/written on timeline 2, recovery follows timeline 1$/, 'the old timeline: which is named');
$standby->append_conf('postgresql.conf', "recovery_target_timeline = 'current'");
my ($control) = run_command([ 'pg_controldata', $standby->data_dir ]);
my ($checkpoint) = $control =~ /Latest checkpoint's TimeLineID:\s+(\d+)\n/;
my ($minimum) = $control =~ /Min recovery ending loc's timeline:\s+(\d+)\n/;
is(verify_json($standby)->{rc}, ($checkpoint > $minimum ? $checkpoint : $minimum) == 2 ? 0 : 2,
	'the timeline of pg_control: as that says');

# The archive is asked as well, as by the server.
my $archive = PostgreSQL::Test::Utils::tempdir;
my $history = slurp_file($standby->data_dir . '/pg_wal/00000002.history');

$standby->append_conf('postgresql.conf', "recovery_target_timeline = 'latest'\nrestore_command = 'echo %r; cp \"$archive/%f\" \"%p\"'");
my @ask = ('--restore-target-wal');
is(verify_json($standby, @ask)->{rc}, 0, 'restore_command: warm, as long as the archive has no other timeline');
append_to_file("$archive/00000003.history", "${history}2\tFF/0\tno recovery target specified\n");
for my $verb ('verify', 'check')
{
	$verdict = verb_json($standby, $verb);
	is($verdict->{rc}, 3, "restore_command, $verb: not run unless it is asked for");
	is("$verdict->{next_start} $verdict->{reason}", 'unknown archive', "restore_command, $verb: the archive would decide");
	like($verdict->{hint}, qr/--restore-target-wal/, "restore_command, $verb: with a hint");
}
$verdict = verify_json($standby, @ask);
is($verdict->{rc}, 2, 'restore_command: cold, once the archive has the history of another one');
like($verdict->{detail}, qr/written on timeline 2, recovery follows timeline 3$/, 'restore_command: which is named');
cold_after_crash($standby, 'timeline', qr/written on timeline 2, recovery follows timeline 3$/,
	'restore_command');
$standby->stop('immediate');

# What it prints is not ours to say.
$standby->append_conf('postgresql.conf', "restore_command = 'echo noise; false'");
my ($rc, $out, $err) = pcache($standby, 'verify', '--json', @ask);
like($out, qr/^\{.*\}\s*$/s, 'restore_command that prints something: that is not in the answer');
like($err, qr/^noise$/m, 'restore_command that prints something: it is passed on');

# A configuration file by a relative name.
{
	my $file = PostgreSQL::Test::Utils::tempdir . '/x.conf';
	my $cwd = Cwd::getcwd();

	PostgreSQL::Test::Utils::append_to_file($file, slurp_file($standby->data_dir . '/postgresql.conf'));
	chdir dirname($file) or die $!;
	my $relative = verify_json($standby, '--config-file' => 'x.conf');
	chdir $cwd or die $!;
	is($relative->{detail}, verify_json($standby)->{detail}, 'a relative --config-file: the same answer');
	unlike($relative->{stderr}, qr/could not read/, 'a relative --config-file: it is found');
}

$standby->append_conf('postgresql.conf', "restore_command = 'kill -TERM \$\$'");
$verdict = verify_json($standby, @ask);
is($verdict->{rc}, 1, 'restore_command dies of a signal: an error');
like($verdict->{stderr}, qr/"restore_command" failed: .*terminated by signal 15/, 'restore_command dies of a signal: which is named');
is((pcache($standby, 'rebuild'))[0], 1, 'restore_command is interrupted: so is pg_pcache rebuild');
$standby->append_conf('postgresql.conf', "restore_command = 'kill -USR1 \$\$'");
is((pcache($standby, 'verify', @ask))[0], 1, 'restore_command dies of another signal: an error');
is((pcache($standby, 'check', @ask))[0], 1, 'restore_command dies of another signal: for pg_pcache check as well');
is((pcache($standby, 'rebuild'))[0], 2, 'restore_command dies of another signal: pg_pcache rebuild does what it can');
like((pcache($standby, 'rebuild'))[2], qr/warning: "restore_command" failed: .*terminated by signal 10:/,
	'restore_command dies of another signal: and warns');

# It is not given what is meant for us, nor a name that a shell would split.
{
	my $odd = PostgreSQL::Test::Utils::tempdir . "/a b; touch split;";

	mkdir $odd or die $!;
	local $ENV{TMPDIR} = $odd;
	$standby->append_conf('postgresql.conf', "restore_command = 'cat >&2; echo got=%p >&2; false'");
	IPC::Run::run([ 'pg_pcache', '-D' => $standby->data_dir, 'verify', '--json', @ask ], '<' => \"secret\n", '>' => \$out, '2>' => \$err);
	unlike($err, qr/secret/, 'restore_command: our input is not its own');
	like($err, qr{^got=/tmp/pg_pcache\.}m, 'restore_command: an odd TMPDIR is not used');
	ok(!-e $standby->data_dir . "/split", 'restore_command: the shell has not run it');
}
done_testing();
