
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Events::Starts - starts, whole or cut off, and runs of somebody else

=head1 DESCRIPTION

Part of the table of events; see Walk::Events.

=cut

package Walk::Events;

use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree make_path);
use Time::HiRes qw(sleep time);

use Walk::Ask;
use Walk::Load;
use Walk::Oracle;
use Walk::Util;

our (%EVENTS, %VICTIM);

# Lines of the log at which a start is cut off.
my @START_LINES = ('persistent cache: ', 'redo starts', 'redo done', 'checkpoint starting', 'consistent recovery state', 'ready to accept', 'entering standby mode');

# Settings of one start only.
sub draw_conf
{
	my ($c, $r) = @_;
	my %conf;
	if ($c->{damaged} || $r->{args}{zero})
	{
		my $zero = $r->pick('zero', 'no', 'zero_damaged_pages', 'ignore_checksum_failure');
		$conf{$zero} = 'on' if $zero ne 'no';
	}
	return \%conf;
}

$EVENTS{start} = {
	weight => 40,
	when => \&down,
	run => sub {
		my ($w, $c, $r) = @_;
		my $look = $r->pick('look', 'answers', 'answers', 'pages');
		my $binary = $r->pick('copy', 'ours', 'stock');
		my $conf = draw_conf($c, $r);
		$c->{tolerant} = %$conf ? 1 : 0;

		# full-page images bring what it does to indexes to its standbys
		if (%$conf) { $_->{zeroed} = 1 for values %{ $w->{clusters} } }
		if (%$conf && $c->{damaged}) { $w->{zeroed_blocks}{$_} = 1 for keys %{ $c->{damaged}{pages} } }
		examined_start($c, look => $look, binary => $binary, conf => $conf);
		after_start($w, $c);
		return;
	}
};

# What a recovery target has made of it.
sub after_start
{
	my ($w, $c) = @_;
	$c->{dead} = 1 if !$c->{up} && ($c->{ended} // '') eq 'dead';
	leave_behind($w, $c) if $c->{lossy} && $c->{role} eq 'primary' && !$c->{recovery};
	if (($c->{recovery} // '') eq 'targeted')
	{
		if (!$c->{up}) { $c->{target} = { recovery_target_action => "'promote'" } if !$c->{dead} }
		elsif (!$c->in_recovery) { delete @$c{qw(recovery target)}; $c->{role} = 'primary' }
	}
	delete $c->{ended};
	return;
}

# Standbys of a primary that lost WAL may have it: nothing can be said of them,
# whatever the server is.
sub leave_behind
{
	my ($w, $c) = @_;
	for my $follower (grep { ($_->{upstream} // '') eq $c->{name} } values %{ $w->{clusters} })
	{
		$follower->kill_all if $follower->{up};
		next if $follower->{dead};
		$follower->{dead} = 1;
		$w->say("$follower->{name}: left behind by $c->{name}");
		leave_behind($w, $follower);
	}
	return;
}

# A start that is killed: all, or the startup process; or it is stopped.
$EVENTS{start_cut} = {
	weight => 8,
	when => \&down,
	run => sub {
		my ($w, $c, $r) = @_;
		my $who = $r->pick('who', 'all', 'startup', 'stop');
		my $line = $r->pick('at', @START_LINES);
		my $more = $r->fraction('more', 0.05);
		$c->spawn;
		wait_for_line($c, $line, 3);
		sleep $more;
		cut($c, $who);
		after_start($w, $c);
		return;
	}
};

sub cut
{
	my ($c, $who) = @_;
	if ($who eq 'stop' && !defined $c->ended)
	{
		kill 'INT', $c->{pid};
		$c->{walk}->problem("$c->{name}: does not stop while it starts") if !$c->wait_end(60) && !$c->waits_for_walsender;
	}
	if ($who eq 'startup' && !defined $c->ended)
	{
		my $children = children_of($c->{pid});
		my ($pid) = grep { $children->{$_} =~ $VICTIM{startup} } keys %$children;
		if ($pid)
		{
			kill 'KILL', $pid;
			$c->wait_end(5);
			wait_gone(keys %$children) if !$c->{up};
		}
	}
	$c->kill_all;
	$c->{clean} = 0;
	return;
}

# Somebody else works on the data files: another mode, the unpatched server,
# a single user.  It ends well, or is killed, perhaps in the middle of redo.
$EVENTS{other_run} = {
	weight => 10,
	when => \&down,
	run => sub {
		my ($w, $c, $r) = @_;
		my $how = $r->pick('how', 'off', 'off', 'stock', 'stock', 'single', 'single_stock', 'planned_restart');
		my $end = $r->pick('end', 'redo', 'redo', 'redo', 'fast', 'crash');
		my $buffers = $r->pick('buffers', '128kB', '512kB', '2MB', '16MB');
		my $more = $r->fraction('more', 0.08);
		my %load = draw_load($r, 'none', 'update', 'mixed', 'queue');
		my $seconds = $r->fraction('seconds', $w->{brief} ? 0.2 : 0.5);
		my $bin = $how =~ /stock/ ? 'stock' : 'ours';
		my %conf = (shared_buffers => $buffers, 'pcache.mode' => 'off', wal_sync_method => 'fdatasync',
			$how eq 'planned_restart' ? ('pcache.mode' => 'planned_restart') : ());

		# who preloads the library in single-user mode has it configured
		delete $conf{'pcache.mode'} if $how eq 'single';
		if ($how =~ /single/)
		{
			return 'not with a signal file' if $c->{recovery};
			$c->write_conf(conf => \%conf, plain => $bin eq 'stock');
			spew("$c->{dir}/single.sql", "SELECT count(*) FROM ledger;\nUPDATE upd SET a = a + 1 WHERE id % 3 = 0;\n");
			$c->{log_offset} = -s $c->{log} // 0;
			my $pid = start_to($c->{log}, 'sh', '-c', 'exec "$0" --single -D "$1" postgres < "$2" > "$3"', $c->bin($bin) . '/postgres', $c->{data}, "$c->{dir}/single.sql", "$c->{dir}/single.out");
			if ($end ne 'fast')
			{
				$c->{up} = 1;
				$c->{pid} = $pid;
				wait_for_line($c, 'redo starts', 1);
				sleep $more if $c->{up};
				kill 'KILL', $pid if $c->{up};
			}
			waitpid($pid, 0) if $end eq 'fast' || $c->{up};
			$c->gone;
			$c->{clean} = $end eq 'fast';
			return;
		}
		$c->spawn(bin => $bin, conf => \%conf);
		if ($end eq 'redo')
		{
			wait_for_line($c, 'redo starts', 3);
			sleep $more;
			cut($c, 'all');
			after_start($w, $c);
			return;
		}
		my $seen = watch($c, goal => goal_of($c));
		if ($seen->{end} eq 'exit') { $c->{ended} = $c->{exit} eq '0' ? 'target' : 'dead'; after_start($w, $c); return "ended: $c->{exit}" }
		if ($seen->{end} eq 'waits') { cut($c, 'all'); after_start($w, $c); return 'waits for WAL' }
		after_start($w, $c);
		report($c, check_invariants($c));
		run_load($c, $seconds, %load) if $load{kind} ne 'none' && $c->{role} eq 'primary' && !$c->{recovery};
		$end eq 'fast' ? $c->stop('fast') : $c->kill_all;
		return;
	}
};

1;
