
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Torture::PowerCut - where is the power cut, and what is on media then?

=head1 DESCRIPTION

The library tests/powercut/libpowercut.so keeps apart what has reached the media,
and can cut the power by itself.  All of this does nothing, or is not called,
without --whole.

=cut

package Torture::PowerCut;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Time::HiRes qw(sleep time);

use FileCut;
use LibraryPool;
use Programs;
use Torture::Processes;
use Torture::Server;
use Torture::State;
use Workload qw(pick number);

our @EXPORT = qw(keep_files cut_power cut_files_of random_site arm_shim cut_at_site);

# From now on the shim tells the durable files of the server with this
# pool apart, and all that is there is.
sub keep_files
{
	my ($pool) = @_;
	with_shim($pool, sub { all_durable("$pool.files", file_roots($pool)) }) if $opt{whole};
	return;
}

# The power goes, and comes back: make of the pool in a directory, and of the files of
# its server, what is found then.  No process uses them any more.
# $s is the plan of the round.  A pool in DRAM has its cut in Torture::Reboot.  Returns
# whether the next start is one after a loss of power.
sub cut_power
{
	my ($pool, $s) = @_;
	return 0 if !$opt{whole} || $dram;
	my ($began, $seen_at) = (time, (last_sighting("$pool/pool"))[0]);
	cut_files_of($pool, $s) or return 1;
	spew("$pool.image.cut", join(' ', map { sprintf '%d', 1e9 * $_ } $began - 0.01, time, $seen_at));
	my $out = "$dir/powercut.out";
	unlink $out;
	run_to($out, "$opt{whole}/powercut", "$pool/pool", "$pool.image", int rand 2**31) == 0
	  or die 'powercut: ' . slurp($out);
	chomp(my $said = slurp($out));
	say_line("    power cut: $said");
	unlink "$pool.image.ctl";
	return 1;
}

# The part of that which is about files.  Returns whether there is a pool then.
sub cut_files_of
{
	my ($pool, $s) = @_;
	my ($data) = file_roots($pool);
	my $said = cut_files("$pool.files", cut_units($s->{conf}), file_roots($pool));
	say_line("    files: $said");
	# that process id may be in use again
	unlink "$data/postmaster.pid";
	keep_files($pool);
	return 1 if $dram;
	if (!-s "$pool/pool")
	{
		problem('the pool itself was not durable');
		return 0;
	}
	truncate("$pool.image", -s "$pool/pool") or die "$pool.image: $!";
	return 1;
}

# Where the shim is to cut the power, as in tests/powercut/powercut.h: what is
# stored there, how often until the cut at most, and at which step.
my %SITES = (
	superblock => [ 1, 8, 40, 1 .. 4 ],
	note => [ 2, 100, 1000, 1 .. 4 ],
	entry => [ 4, 200, 2000, 1 .. 4 ],
	page => [ 8, 200, 20000, 1 .. 4 ]);

# The name of one of them.  Superblocks are stored only at a start and at a stop.
sub random_site
{
	my ($running) = @_;
	return pick(grep { !$running || $_ ne 'superblock' } sort keys %SITES);
}

# Have the shim cut the power at a site.  Returns a text.
#
#   event  at which step (default: a random one of the site)
#   most   after how many such events at most (default: as above)
sub arm_shim
{
	my ($pool, $site, %how) = @_;
	my ($kinds, $drains, $flushes, @events) = @{ $SITES{$site} };
	my $event = $how{event} // pick(@events);
	my $n = number(1, $how{most} // ($event == 1 ? $flushes : $drains));
	my $ctl = "$pool.image.ctl";
	spew($ctl, "\0" x 128) if !-e $ctl;
	open(my $fh, '+<:raw', $ctl) or die "$ctl: $!";
	sysseek($fh, 4, 0);
	syswrite($fh, pack('LL', $kinds, $event));
	sysseek($fh, 16, 0);
	syswrite($fh, pack('q', $n));
	sysseek($fh, 0, 0);
	syswrite($fh, pack('L', 1));
	close $fh;
	return sprintf('%s of %s %d', (qw(- flush drain half-drain drained))[$event], $site, $n);
}

# Have the power cut at the site of --set site=NAME, or at a random one, while the
# server works.  If it does not come to that in 8 seconds it is killed.
sub cut_at_site
{
	my ($data, $pool) = @_;
	my $pm = postmaster_pid($data) // return 0;
	my $p = server_processes($pm);
	my $site = arm_shim($pool, $set{site} // random_site(1));
	my $deadline = time + 8;
	sleep 0.01 while -e "/proc/$pm/stat" && slurp("/proc/$pm/stat") !~ /\) [TZ] / && time < $deadline;
	if (time < $deadline)
	{
		wait_gone($data, [ $pm, keys %$p ]);
		forget_pid($data);
		say_line("    cut at $site");
		$totals{"site " . ($site =~ /of (\w+)/)[0]}++;
		return 1;
	}
	say_line("    it did not come to the cut at $site");
	return kill_all($data);
}

1;
