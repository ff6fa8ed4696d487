
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Events::Ends - stops and crashes of servers and of single processes

=head1 DESCRIPTION

Part of the table of events; see Walk::Events.

=cut

package Walk::Events;

use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree make_path);
use Time::HiRes qw(sleep time);

use Walk::Ask;
use Walk::Damage;
use Walk::Load;
use Walk::Oracle;
use Walk::Util;

our (%EVENTS, %VICTIM);

$EVENTS{stop} = {
	weight => 5,
	when => \&up,
	run => sub {
		my ($w, $c, $r) = @_;
		my $mode = $r->pick('mode', 'fast', 'fast', 'fast', 'immediate');
		under_load($c, $r, sub { $c->stop($mode) });
		$c->note_ending('kill');
		return;
	}
};

$EVENTS{crash} = {
	weight => 12,
	when => \&up,
	run => sub {
		my ($w, $c, $r) = @_;
		my $how = $r->pick('how', 'all', 'all', 'immediate', 'postmaster');
		under_load($c, $r, sub {
			if ($how eq 'immediate') { $c->stop('immediate') }
			elsif ($how eq 'all') { $c->kill_all }
			else
			{
				# the others notice
				my $children = children_of($c->{pid});
				kill 'KILL', $c->{pid};
				waitpid($c->{pid}, 0);
				sleep 0.05;
				$c->gone;
				wait_gone(keys %$children);
			}
		});
		$c->note_ending('kill');
		return;
	}
};

# WAL fills pg_wal up, which is a PANIC, and somebody makes some room.  A start
# that keeps pages must not fill that up before its checkpoint.
$EVENTS{fill_wal} = {
	weight => 4,
	when => sub { return writable(@_) && !$_[0]{whole} && !$_[1]{run_plain} && !$_[1]{conf}{restart_after_crash}; },
	run => sub {
		my ($w, $c, $r) = @_;
		my %load = draw_load($r, 'update', 'mixed', 'bulk', 'ddl');
		$c->limit_wal($r->number('fills', 0, 12));
		my $makes = $r->number('makes', 5, 20);
		my $pids = start_load($c, %load);
		my $deadline = time + 3;
		sleep 0.02 while time < $deadline && $c->log_since !~ /PANIC:/ && !defined $c->ended;
		$c->limit_wal if $c->log_since !~ /PANIC:/;
		end_load($pids);
		if ($c->log_since !~ /PANIC:/ && !defined $c->ended)
		{
			quiesce($c);
			return 'pg_wal does not get full';
		}
		$w->problem("$c->{name}: does not end after a PANIC") if !$c->wait_end(60);
		$w->problem("$c->{name}: ends, but not because pg_wal is full: " . $c->log_since)
		  if $c->log_since !~ /PANIC:.*No space left on device/;
		$w->{totals}{'pg_wal was full'}++;
		$c->limit_wal($makes);
		return 'pg_wal got full';
	}
};

# One process dies; the postmaster gives up, or starts all over.  wild: it
# stored to a wrong address before.
$EVENTS{kill_one} = {
	weight => 7,
	when => \&up,
	run => sub {
		my ($w, $c, $r) = @_;
		my $victim = $r->pick('victim', 'backend', 'backend', 'worker', 'checkpointer', 'walwriter', 'bgwriter', 'startup');
		my $signal = $r->pick('signal', 'KILL', 'SEGV', 'SEGV', 'ABRT', 'QUIT', 'BUS', 'ILL');
		my $restart = $r->chance('restart', 0.5);
		my $wild = $r->chance('wild', 0.5) && $signal =~ /^(?:SEGV|BUS|ILL)$/;
		my ($at, $offset) = ($r->real, $r->real);
		my ($said, $by) = ('');
		if ($restart) { $c->{conf}{restart_after_crash} = 'on'; $c->reload('restart_after_crash', 'on') }
		else { delete $c->{conf}{restart_after_crash}; $c->reload('restart_after_crash', 'off') }

		my $twin;
		my $goal = goal_of($c);
		my $session = $victim eq 'backend' ? ($c->connect)[0] : undef;
		under_load($c, $r, sub {
			my $children = freeze($c->{pid});
			my ($pid) = grep { $children->{$_} =~ $VICTIM{$victim} } sort keys %$children;
			($pid) = grep { $children->{$_} =~ $VICTIM{checkpointer} } sort keys %$children if !$pid;

			# the copy is of the moment of the crash: nobody works any more
			$twin = make_twin($c, binary => 'ours') if $restart;
			$said = wild_store($c, $at, $offset) if $wild && $c->{conf}{'pcache.mode'} ne 'off' && !$c->{without};
			$c->{log_offset} = -s $c->{log};
			kill $signal, $pid;
			kill 'CONT', $pid;
			wait_for_state($pid, qr/[ZX]/);
			my @others = grep { $_ != $pid } keys %$children;
			kill 'CONT', $c->{pid};

			# does the postmaster end the others, within so many seconds?
			my $ends_others = sub {
				my $deadline = time + $_[0];
				while (1)
				{
					return 1 if $c->log_since =~ /terminating any other active server processes/;
					return 0 if defined $c->ended || time >= $deadline;
					sleep 0.005;
				}
			};

			# their SIGQUIT waits for them, or else they do what the copy has not
			$ends_others->(3);
			sleep 0.1;
			kill 'CONT', @others;
			if (!$ends_others->(10) && $c->{up})
			{
				# it was not a crash
				$said .= ' it survived';
				$restart = 0;
			}
			elsif ($restart) { wait_gone(@others) }
			else { $c->wait_end(60) }
			$c->kill_all if !$restart;
			wait_gone(@others) if !$restart;
			$by = $signal eq 'KILL' || $said =~ /survived/ ? 'kill' : 'fault';
		});
		$c->note_ending($by);
		if ($restart)
		{
			$twin->{clean} = 0;
			run_twin($twin, goal => $goal, conf => $c->{run_conf}, bad => bad_of_copy($c));
			my $seen = watch($c, goal => $goal);
			my $text = $c->log_since;
			if ($seen->{end} eq 'exit' && $text =~ /shutting down due to startup process failure/)
			{
				# as PostgreSQL does, whatever restart_after_crash says
				$w->say("$c->{name}: the startup process was the one");
			}
			elsif ($seen->{end} =~ /exit|hangs/)
			{
				my ($why) = reverse $text =~ /(FATAL: .*|PANIC: .*)/g;
				$w->problem("$c->{name}: $seen->{end} after the crash of a process: " . ($why // ''));
				$c->kill_all if $c->{up};
			}
			else
			{
				$w->say("$c->{name}: " . join(' ', $c->outcome($text)) . "; $seen->{end}, $seen->{asked} answers; copy: $twin->{seen}{end}");
				judge_restart($c, $by, ($c->outcome($text))[0]);
				(my $other = $text) =~ s/^.*was terminated by signal.*$//mg;
				compare_with_twin($c, $twin, $seen, $other, look => 'answers');
			}
		}
		end_twin($twin) if $twin;
		$c->{clean} = 0;
		return $said;
	}
};

# Lines of the log at which a stop is cut off.
my @STOP_LINES = ('received fast shutdown', 'checkpoint starting: shutdown', 'checkpoint complete: .*', 'shutting down');

$EVENTS{stop_cut} = {
	weight => 4,
	when => \&up,
	run => sub {
		my ($w, $c, $r) = @_;
		my $line = $r->pick('at', @STOP_LINES);
		my $more = $r->fraction('more', 0.02);
		under_load($c, $r, sub {
			$c->{log_offset} = -s $c->{log};
			kill 'INT', $c->{pid};
			wait_for_line($c, $line, 5);
			sleep $more;
			$c->kill_all;
		});
		$c->{clean} = 0;
		$c->note_ending('kill');
		return;
	}
};

1;
