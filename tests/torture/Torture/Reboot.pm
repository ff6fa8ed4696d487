
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Torture::Reboot - a reboot of the host between a clean stop and the next start

=head1 DESCRIPTION

The pool is saved to an image, goes, as one in DRAM does, and is loaded again.
With --whole the power goes with it.  Besides, at random,

  stale     there is an image of the stop before, which must not be loaded
  killed    load is killed at some moment, and repeated; the power may go with it
  halved    the next start has another number of shared buffers

=cut

package Torture::Reboot;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use File::Path qw(remove_tree);
use Time::HiRes qw(sleep);

use Programs;
use Torture::Load;
use Torture::PowerCut;
use Torture::Server;
use Torture::State;
use Workload qw(pick number);

our @EXPORT = qw(stop_and_reboot);

# Run pg_pcache on the cluster.  Returns its exit status and what it printed.
sub pg_pcache
{
	my ($env, @args) = @_;
	my $out = "$dir/pg_pcache.out";
	unlink $out;
	my $rc = with_shim("$dir/pool", sub {
		local %Programs::env = (%Programs::env, %$env);
		return run_to($out, "$bin/pg_pcache", shift @args, '-D', "$dir/data", @args);
	});
	return ($rc, slurp($out));
}

# As pg_pcache(), and another exit status than the one given is a problem.
sub expect
{
	my ($status, @args) = @_;
	my ($rc, $text) = pg_pcache({}, @args);
	problem("pg_pcache @args: exit status $rc, not $status: $text") if $rc != $status;
	return $text;
}

# What a reboot leaves of a pool on tmpfs.
sub lose_pool
{
	pick(1, 0) ? remove_tree("$dir/pool") : unlink "$dir/pool/pool";
	return;
}

sub save
{
	my ($image) = @_;
	my @kind = pick([], ['--compress=lz4'], ['--compress=zstd'], ['--compress=none'])->@*;
	expect(0, 'save', '--to', $image, @kind, '-j', number(1, 4));
	return "@kind";
}

# Where a load is cut off: at a step that it tells of itself, or some time after it
# began.  Then the next start must not be warm by half of a pool.
sub killed_load
{
	my ($image, $s) = @_;
	my ($step, $said);
	my $killed = 0;
	if (pick(1, 0))
	{
		$step = pick('load-created', 'load-marked', 'load-chunk:1', 'load-chunk:' . number(2, 5), 'load-filled');
		my ($rc) = pg_pcache({ PG_PCACHE_KILL_AT => $step }, 'load', '--from', $image, '-j', number(1, 4));
		$killed = $rc == 9;
		$said = $killed ? "killed at $step" : "not killed at $step";
	}
	else
	{
		my $seconds = rand 0.1;
		my $pid = with_shim("$dir/pool",
			sub { start_to("$dir/pg_pcache.out", "$bin/pg_pcache", 'load', '-D', "$dir/data", '--from', $image, '--keep') });
		sleep $seconds;
		kill 'KILL', $pid;
		waitpid($pid, 0);
		$said = sprintf('killed after %.3f s', $seconds);
	}
	my ($rc, $text) = pg_pcache({}, 'verify');
	problem("$said, and the next start is not cold: $text") if $killed && $rc != 2;
	problem("$said, and there is no image any more: $text") if !-e $image && $rc != 0;
	$totals{"killed load: verify $rc"}++;
	if ($opt{whole} && -e $image && pick(0, 1))
	{
		cut_files_of("$dir/pool", $s);
		lose_pool();
		problem("$said, and the image is gone with the power") if !-e $image;
		$said .= ', then the power went';
	}
	return "$said (verify $rc)";
}

# Stop the server cleanly, and have its pool lost and found again.
sub stop_and_reboot
{
	my ($s) = @_;
	my $data = "$dir/data";
	my ($image, $stale) = ("$dir/images/image", "$dir/images/stale");
	my @said;
	stop_server($data, 'fast') == 0 or problem('the server does not stop');
	end_load();

	if (pick(0, 0, 1))
	{
		save($stale);
		start_server($data, "$dir/server.log") == 0 or problem('no start after a save');
		start_load($s, 'stale');
		sleep(0.2 + rand 1);
		stop_server($data, 'fast') == 0 or problem('the server does not stop');
		end_load();
	}
	push @said, save($image);
	cut_files_of("$dir/pool", $s) if $opt{whole};
	problem('a saved image is gone with the power') if !-e $image;
	lose_pool();
	if (-e $stale)
	{
		push @said, 'stale image refused';
		expect(2, 'load', '--from', $stale);
		problem('a stale image was loaded') if -e "$dir/pool/pool";
	}
	push @said, killed_load($image, $s) if pick(0, 1);
	expect(0, 'load', '--from', $image, '-j', number(1, 4)) if -e $image;
	if ($s->{fewer} || pick(0, 0, 1))
	{
		my ($mb) = $s->{shared_buffers} =~ /^(\d+)MB$/ or die 'shared_buffers is not in MB';
		my $size = pick($mb / 2, $mb * 2) . 'MB';
		push @said, "shared_buffers $size";
		append_conf($data, "shared_buffers=$size");
	}
	say_line('    reboot: ' . join(', ', grep { $_ ne '' } @said));
	$totals{"reboot $_"}++ for map { s/ \(.*|\d.*|:.*//gr } @said;
	return 1;
}

1;
