
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Util - files, programs and processes

=cut

package Walk::Util;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use POSIX qw(:sys_wait_h);
use Time::HiRes qw(sleep time);

use PageCompare qw(format_lsn);
use Programs;

our @EXPORT = (@Programs::EXPORT, qw(must_run copy_dir lsn_number format_lsn
  children_of wait_for_state wait_gone freeze signal_all));

sub must_run
{
	my ($file, @cmd) = @_;
	my $size = -s $file // 0;
	my $rc = run_to($file, @cmd);
	die "@cmd failed ($rc): " . slurp($file, $size) if $rc != 0;
	return;
}

sub copy_dir
{
	my ($out, $from, $to, @options) = @_;
	must_run($out, 'cp', '-a', '--reflink=auto', @options, $from, $to);
	return;
}

sub lsn_number
{
	my ($hi, $lo) = split m{/}, $_[0];
	return hex($hi) * 2**32 + hex($lo);
}

# The live children of a postmaster: pid => title.
sub children_of
{
	my ($pm) = @_;
	my %p;
	opendir(my $dh, '/proc') or die;
	for my $pid (grep { /^\d+$/ } readdir $dh)
	{
		my ($state, $parent) = process_state($pid) or next;
		$p{$pid} = process_title($pid) if $parent == $pm && $state !~ /[ZX]/;
	}
	closedir $dh;
	return \%p;
}

sub wait_for_state
{
	my ($pid, $pattern) = @_;
	my $deadline = time + 10;
	while (time < $deadline)
	{
		my ($state) = process_state($pid) or return;
		return if $state =~ $pattern;
		sleep 0.001;
	}
	return;
}

# Processes that were ended go away.
sub wait_gone
{
	my (@pids) = @_;
	my $deadline = time + 120;
	while (time < $deadline)
	{
		waitpid($_, WNOHANG) for @pids;
		return 1
		  if !grep { my ($s) = process_state($_); defined $s && $s !~ /[ZX]/ } @pids;
		sleep 0.005;
	}
	die "processes @pids do not go away";
}

# Stop a server and its children where they are.  Returns the latter.
sub freeze
{
	my ($pm) = @_;
	kill 'STOP', $pm;
	wait_for_state($pm, qr/[TZX]/);
	my $p = children_of($pm);
	kill 'STOP', keys %$p;

	# forked before the postmaster stopped
	$p = children_of($pm);
	kill 'STOP', keys %$p;
	wait_for_state($_, qr/[TZX]/) for keys %$p;
	return $p;
}

sub signal_all
{
	my ($signal, @pids) = @_;
	kill $signal, @pids if @pids;
	return;
}

1;
