
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Trap - stop a server right after a store to a given place of its pool

=head1 SYNOPSIS

  my $said = trap_store($c, points => [ $offset, ... ], hits => 1, fork => 0,
    go => sub { ... }, done => sub { ... });

=head1 DESCRIPTION

The processor's debug registers watch up to four ranges of 8 bytes of the pool
file, in the processes of a server.  The process that stores to one of them is
stopped after the instruction that did it, and then the whole server is killed:
so the pool is as it is in the middle of what stores to it.

By ptrace(2), on x86-64; works() tells whether this machine can do it.

=cut

package Walk::Trap;

use strict;
use warnings FATAL => 'all';
no warnings 'portable';    # 64 bits

use Exporter 'import';
use POSIX qw(:sys_wait_h);
use Time::HiRes qw(sleep time);

use Walk::Util;

our @EXPORT = qw(trap_store trap_works);

use constant {
	SYS_PTRACE => 101,
	SYS_WAIT4 => 61,
	PEEKUSER => 3, POKEUSER => 6, CONT => 7, ATTACH => 16, SETOPTIONS => 0x4200,
	TRACE_FORKS => 2 | 4 | 8,
	DEBUGREG => 848,    # offsetof(struct user, u_debugreg)
	WALL => 0x40000000,
};

# Numbers that were strings once would be passed as pointers.
sub ptrace { return syscall(SYS_PTRACE, $_[0], $_[1] + 0, $_[2] + 0, $_[3]); }

# A child or traced process that ended or stopped, and its status: waitpid()
# does not tell about stops.
sub wait_any
{
	my $status = pack('l', 0);
	my $pid = syscall(SYS_WAIT4, -1, $status, WNOHANG | WALL, 0);
	return ($pid, unpack('l', $status));
}

my $works;

sub trap_works
{
	return $works if defined $works;
	$works = 0;
	return 0 if (POSIX::uname())[4] ne 'x86_64';
	my $pid = fork // return 0;
	if ($pid == 0) { sleep 10; POSIX::_exit(0) }
	if (ptrace(ATTACH, $pid, 0, 0) == 0)
	{
		waitpid($pid, 0);
		$works = watch_points($pid, 0x10000) ? 1 : 0;
	}
	kill 'KILL', $pid;
	waitpid($pid, 0);
	return $works;
}

# Writes of 8 bytes at these addresses stop a process that is stopped now.
sub watch_points
{
	my ($pid, @addresses) = @_;
	my $control = 0;
	for my $i (0 .. $#addresses)
	{
		return 0 if ptrace(POKEUSER, $pid, DEBUGREG + 8 * $i, $addresses[$i]) != 0;
		$control |= 1 << 2 * $i | 9 << 16 + 4 * $i;
	}
	return ptrace(POKEUSER, $pid, DEBUGREG + 56, $control) == 0;
}

# Did one of them stop it?
sub was_hit
{
	my ($pid) = @_;
	my $status = "\0" x 8;
	return 0 if ptrace(PEEKUSER, $pid, DEBUGREG + 48, $status) != 0;
	my $hit = unpack('Q', $status) & 15;
	ptrace(POKEUSER, $pid, DEBUGREG + 48, 0) if $hit;
	return $hit;
}

# Where a process has these offsets of the pool file; () if it has no pool yet.
sub addresses
{
	my ($pid, $file, @offsets) = @_;
	my @found;
	for my $line (split /\n/, slurp("/proc/$pid/maps"))
	{
		my ($from, $to, $at) = $line =~ /^(\w+)-(\w+) rw-s (\w+) .* \Q$file\E$/ or next;
		($from, $to, $at) = map { hex } $from, $to, $at;
		push @found, map { $from + $_ - $at } grep { $_ >= $at && $_ - $at < $to - $from } @offsets;
	}
	return @found;
}

=pod

=item trap_store($c, ...)

  points   offsets in the pool file, at most four, multiples of 8
  hits     kill at the n-th store
  fork     follow the processes that the postmaster starts
  go       called when all processes of the server are watched
  done     returns true if there is nothing to wait for any more

The cluster is down afterwards.  Returns a text.

=cut

sub trap_store
{
	my ($c, %how) = @_;
	my $file = "$c->{pool}/pool";
	my (%traced, $hit);
	my $hits = 0;
	my $attach = sub {
		my ($pid) = @_;
		return if ptrace(ATTACH, $pid, 0, 0) != 0;
		waitpid($pid, WALL);
		$traced{$pid} = 1;
		my @at = addresses($pid, $file, @{ $how{points} });
		watch_points($pid, @at) if @at;
		ptrace(SETOPTIONS, $pid, 0, TRACE_FORKS) if $how{fork};
		return;
	};

	$attach->($_) for $c->{pid}, $how{fork} ? () : keys %{ children_of($c->{pid}) };
	ptrace(CONT, $_, 0, 0) for keys %traced;
	$how{go}->() if $how{go};

	my $deadline = time + 20;
	while (time < $deadline && $c->{up})
	{
		my ($pid, $status) = wait_any();
		if ($pid <= 0)
		{
			last if $how{done} && $how{done}->();
			sleep 0.0003;
			next;
		}
		if (($status & 0xFF) != 0x7F)
		{
			delete $traced{$pid};
			$c->reaped($status) if $pid == $c->{pid};
			next;
		}
		my ($signal, $event) = ($status >> 8 & 0xFF, $status >> 16);
		if (!$traced{$pid})
		{
			# a new process, stopped before it does anything
			$traced{$pid} = 1;
			my @at = addresses($pid, $file, @{ $how{points} });
			watch_points($pid, @at) if @at;
			$signal = 0;
		}
		elsif ($event) { $signal = 0 }
		elsif ($signal == 5)
		{
			my $which = was_hit($pid);
			if ($which && ++$hits >= $how{hits})
			{
				my ($first) = grep { $which & 1 << $_ } 0 .. 3;
				$hit = sprintf('%s, after a store at %d', process_title($pid) =~ s/\s+\z//r, $how{points}[$first]);
				last;
			}
			$signal = 0;
		}
		ptrace(CONT, $pid, 0, $signal);
	}
	return 'it came to its end' if !$c->{up};
	kill_traced($c, keys %traced);
	return defined $hit ? "cut in $hit" : 'it did not come to that store, and was killed';
}

# SIGKILL ends a process that is traced, too.
sub kill_traced
{
	my ($c, @traced) = @_;
	my $children = children_of($c->{pid});
	kill 'KILL', $c->{pid}, keys %$children, @traced;
	$children = children_of($c->{pid});
	kill 'KILL', keys %$children;
	my %gone;
	my $deadline = time + 60;
	while (time < $deadline)
	{
		my ($pid, $status) = wait_any();
		if ($pid > 0)
		{
			kill 'KILL', $pid if ($status & 0xFF) == 0x7F;
			next;
		}
		last if !grep { my ($s) = process_state($_); defined $s && $s !~ /[ZX]/ } $c->{pid}, @traced, keys %$children;
		sleep 0.002;
	}
	$c->gone;
	$c->{clean} = 0;
	return;
}

1;
