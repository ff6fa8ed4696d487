
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

our @EXPORT = qw(slurp spew run_to start_to must_run copy_dir lsn_number format_lsn
  children_of process_title process_state wait_for_state wait_gone freeze signal_all);

sub slurp
{
	my ($file, $offset) = @_;
	open(my $fh, '<:raw', $file) or return '';
	seek($fh, $offset, 0) if $offset;
	local $/;
	my $s = <$fh>;
	close $fh;
	return $s // '';
}

sub spew
{
	my ($file, $text) = @_;
	open(my $fh, '>:raw', $file) or die "$file: $!";
	print $fh $text;
	close $fh or die "$file: $!";
	return;
}

our %env;    # more environment for programs

sub start_to
{
	my ($file, @cmd) = @_;
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		%ENV = (%ENV, %env);
		setpgrp(0, 0);
		$SIG{$_} = 'DEFAULT' for qw(INT TERM HUP QUIT PIPE);
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>>', $file) or POSIX::_exit(126);
		open(STDERR, '>&', \*STDOUT);
		{ no warnings 'exec'; exec(@cmd); }
		POSIX::_exit(127);
	}
	return $pid;
}

# Run a program, its output to a file; returns the exit code.
sub run_to
{
	my ($file, @cmd) = @_;
	my $pid = start_to($file, @cmd);
	waitpid($pid, 0);
	return $? >> 8 || $?;
}

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

sub format_lsn { return sprintf('%X/%X', $_[0] >> 32, $_[0] & 0xFFFFFFFF); }

# State letter and parent of a process, or nothing.
sub process_state
{
	my ($pid) = @_;
	return slurp("/proc/$pid/stat") =~ /^\d+ \(.*\) (\S) (\d+)/s ? ($1, $2) : ();
}

sub process_title
{
	my ($pid) = @_;
	my $title = slurp("/proc/$pid/cmdline");
	$title =~ tr/\0/ /;
	return $title;
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
