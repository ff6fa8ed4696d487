
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Programs - run programs, and read and write files

=head1 DESCRIPTION

What torture.pl and walk.pl have in common.

%Programs::env is more environment for the programs: use "local
%Programs::env" by that name, since an imported one would be another variable.

=cut

package Programs;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use POSIX qw();

our @EXPORT = qw(slurp spew start_to run_to process_state process_title);

our %env;

# The contents of a file, from an offset in bytes on; empty if there is none.
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

# Write a file anew.
sub spew
{
	my ($file, $text) = @_;
	open(my $fh, '>:raw', $file) or die "$file: $!";
	print $fh $text;
	close $fh or die "$file: $!";
	return;
}

# Start a program in a process group of its own, its output appended to a file;
# returns the process id.
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
	# whoever is first: the group is to be there when this returns
	setpgrp($pid, $pid);
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

1;
