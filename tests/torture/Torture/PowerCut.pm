
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Torture::PowerCut - where is the power cut, and what is on media then?

=head1 DESCRIPTION

The library tests/powercut/libpowercut.so keeps apart what has reached the media,
and can cut the power by itself.  All of this does nothing, or is not called,
without --powercut.

=cut

package Torture::PowerCut;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Time::HiRes qw(sleep time);

use FileCut;
use LibraryPool;
use PageCompare;
use Programs;
use Torture::PoolFile;
use Torture::Processes;
use Torture::Server;
use Torture::State;
use Workload qw(pick number);

our @EXPORT = qw(keep_files cut_power cut_files_of random_site arm_shim cut_at_site);

# With --whole: from now on the shim tells the durable files of the server with this
# pool apart, and all that is there is.
sub keep_files
{
	my ($pool) = @_;
	with_shim($pool, sub { all_durable("$pool.files", file_roots($pool)) }) if $opt{whole};
	return;
}

# The power goes, and comes back: make of the pool in a directory what is found
# then, and with --whole of the files of its server.  No process uses them any more.
# $s is the plan of the round.  A pool in DRAM has its cut in Torture::Reboot.  Returns
# whether the next start is one after a loss of power.
sub cut_power
{
	my ($pool, $s) = @_;
	return 0 if !$opt{powercut} || $dram;
	my ($began, $seen_at) = (time, (last_sighting("$pool/pool"))[0]);
	cut_files_of($pool, $s) or return 1 if $opt{whole};
	spew("$pool.image.cut", join(' ', map { sprintf '%d', 1e9 * $_ } $began - 0.01, time, $seen_at)) if $server->{library};
	my $before = -e "$pool.before" ? unlink("$pool.before") : 0;
	must_run('cp', '--sparse=always', "$pool/pool", "$pool.before");
	my $out = "$dir/powercut.out";
	unlink $out;
	run_to($out, "$opt{powercut}/powercut", "$pool/pool", "$pool.image", int rand 2**31) == 0
	  or die 'powercut: ' . slurp($out);
	chomp(my $said = slurp($out));
	say_line("    power cut: $said");
	unlink "$pool.image.ctl";
	# the library's entries tell by their sums what is still there
	compare_pools("$pool.before", "$pool/pool") if !$server->{library};
	unlink "$pool.before";
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

# A slot that the media call sealed holds the page that was in memory when the
# power went: nobody changes a page before its mark is durable.
sub compare_pools
{
	my ($memory, $media) = @_;
	my ($sb, $descs) = read_pool($media);
	my $bad = 0;

	# in mode planned_restart a pool in use is not believed
	return if $sb->{mode} == 1 && $sb->{state} != 4;
	check_lsns($descs);
	open(my $fh, '<:raw', $memory) or die "$memory: $!";
	for my $d (@$descs)
	{
		my $fork = (qw(main fsm vm init))[ (split m{/}, $d->{tag})[3] ] // next;
		next if $fork eq 'fsm';
		seek($fh, $sb->{blocks} + 8192 * $d->{slot}, 0);
		read($fh, my $page, 8192);
		next if $page eq $d->{page};
		my ($x, $y) = map { mask_page($_, $fork) } $d->{page}, $page;
		next if $x eq $y;
		next if !$d->{intact}->();
		my @diff = grep { substr($x, 64 * $_, 64) ne substr($y, 64 * $_, 64) } 0 .. 127;
		seek($fh, 2 * 1024 * 1024 + 64 * $d->{slot}, 0);
		read($fh, my $seq, 8);
		problem(sprintf('sealed on media, but changed: slot %d seq %d tag %s LSN %s, in memory seq %d LSN %s; lines that differ: %s',
				$d->{slot}, $d->{seq}, $d->{tag}, format_lsn($d->{page_lsn}), unpack('Q', $seq),
				format_lsn(page_lsn($page)), "@diff[0 .. ($#diff > 9 ? 9 : $#diff)]")) if $bad++ < 3;
	}
	close $fh;
	problem("sealed on media, but changed: $bad slots") if $bad > 3;
	return;
}

# Where the shim is to cut the power, as in tests/powercut/powercut.h: what is
# stored there, how often until the cut at most, and at which step.
my %SITES = (
	superblock => [ 1, 8, 40, 1 .. 4 ],
	control => [ 32, 16, 16, 1 .. 4 ],
	watermark => [ 2, 100, 1000, 1 .. 4 ],
	mark => [ 4, 500, 2000, 1 .. 4 ],
	seal => [ 8, 200, 2000, 1 .. 4 ],
	page => [ 16, 200, 20000, 1 .. 4 ]);

# Only if the shim sees each store.
my %STORE_SITE = (store => [ 8, 3000, 3000, 6 ]);

# The name of one of them.  Superblocks are stored only at a start and at a stop.
sub random_site
{
	my ($running) = @_;

	my @sites = grep { !$running || $_ ne 'superblock' } $server->{library} ? qw(superblock watermark seal page) : keys %SITES;
	return pick(sort(@sites, $trace ? keys %STORE_SITE : ()));
}

# Have the shim cut the power at a site.  Returns a text.
#
#   event  at which step (default: a random one of the site)
#   most   after how many such events at most (default: as above)
#   die    kill the process that comes there instead
sub arm_shim
{
	my ($pool, $site, %how) = @_;
	my ($kinds, $drains, $flushes, @events) = @{ $SITES{$site} // $STORE_SITE{$site} };
	my $event = $how{event} // pick(@events);
	my $n = number(1, $how{most} // ($event == 1 ? $flushes : $drains));
	my $ctl = "$pool.image.ctl";
	spew($ctl, "\0" x 128) if !-e $ctl;
	open(my $fh, '+<:raw', $ctl) or die "$ctl: $!";
	sysseek($fh, 4, 0);
	syswrite($fh, pack('LL', $kinds, $event));
	sysseek($fh, 16, 0);
	syswrite($fh, pack('qL', $n, $how{die} // 0));
	sysseek($fh, 0, 0);
	syswrite($fh, pack('L', 1));
	close $fh;
	return sprintf('%s of %s %d', (qw(- flush drain half-drain drained call after))[$event], $site, $n);
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
