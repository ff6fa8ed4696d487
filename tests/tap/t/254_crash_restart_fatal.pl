
# Copyright (c) 2026, the persistent-cache developers

# A crash of a backend restarts the server, and the startup process finds that
# the pool, which is required, can't be used at all.  The postmaster exits; it does not wait for
# ever for a startup process that is gone.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_inject_module();

for my $mode (qw(planned_restart always))
{
	my $node = new_node("node_$mode", mode => $mode,
		conf => "shared_preload_libraries = 'pcache_inject'\nrestart_after_crash = on");
	my ($expected, $offset, $log, $pid, $postmaster, $gone);

	$node->start;
	load_data($node);
	$expected = checksums($node, tables => [LOGGED]);

	# An ordinary crash first: it comes back.
	crash_of_backend($node);
	wait_until_back($node);
	contents_right($node, $expected, "$mode: crash of a backend");

	$node->append_conf('postgresql.conf', q{pcache_inject.media = 'truncated'});
	reload_until($node, 'pcache_inject.media', '=', 'truncated');
	$offset = log_offset($node);
	$postmaster = $node->{_pid};
	crash_of_backend($node);
	$node->wait_for_log(qr/FATAL:  persistent cache pool .* cannot be used: too many of its blocks are bad/, $offset);
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$gone = !-e $node->data_dir . '/postmaster.pid';
		last if $gone;
		select undef, undef, undef, 0.1;
	}
	ok($gone, "$mode: the postmaster exits");
	if ($gone)
	{
		$node->{_pid} = undef;
	}
	else
	{
		kill_all($node);
	}
	$log = slurp_file($node->logfile, $offset);
	like($log, qr/startup process \(PID \d+\) exited with exit code 1/, "$mode: it says that the startup process failed");
	like($log, qr/shutting down due to startup process failure/, "$mode: and that it shuts down because of that");

	$node->adjust_conf('postgresql.conf', 'pcache_inject.media', undef);
	$node->start;
	contents_right($node, $expected, "$mode: once the media are fine");
	restart_warm($node, "$mode: once the media are fine, a clean stop");
	$node->stop;
}
done_testing();

# SIGKILL to one backend.
sub crash_of_backend
{
	my ($node) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	my $offset = log_offset($node);

	kill 'KILL', $pid;
	$node->wait_for_log(qr/all server processes terminated; reinitializing/, $offset);
	eval { $session->quit };
	return;
}
