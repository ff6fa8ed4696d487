
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Events::Backups - backups, recovery targets, snapshots

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

our %EVENTS;

$EVENTS{backup} = {
	weight => 3,
	when => sub { return alone(@_) && writable(@_) && $_[0]{senders} && !$_[1]{damaged}; },
	run => sub {
		my ($w, $c, $r) = @_;
		remove_tree("$w->{dir}/backup");
		my %load = draw_load($r, 'none', 'mixed', 'queue');
		my $pids = start_load($c, %load);
		must_run($c->{out}, "$w->{bin}/pg_basebackup", '-h', $w->{sockets}, '-p', $c->{port}, '-U', 'postgres', '-D', "$w->{dir}/backup", '-X', 'fetch', '-c', 'fast', '--no-sync');
		end_load($pids);
		quiesce($c);
		$w->{backup} = { targets => [], checksums => $w->{checksums} };
		return;
	}
};

# A point that a recovery may be asked for.
$EVENTS{mark} = {
	weight => 3,
	when => sub { return writable(@_) && $_[0]{backup}; },
	run => sub {
		my ($w, $c) = @_;
		my $n = @{ $w->{backup}{targets} };
		my $lsn = $c->sql("SELECT pg_create_restore_point('point$n')");
		push @{ $w->{backup}{targets} }, { name => "'point$n'", lsn => "'$lsn'", time => "'" . $c->sql('SELECT clock_timestamp()') . "'", xid => "'" . $c->sql('SELECT pg_snapshot_xmax(pg_current_snapshot())') . "'" };
		return;
	}
};

# Back to the backup, or go on here; to a target or to the end.
$EVENTS{restore} = {
	weight => 4,
	when => sub { return alone(@_) && down(@_) && $_[0]{backup}; },
	run => sub {
		my ($w, $c, $r) = @_;
		my $from = $r->pick('from', 'backup', 'backup', 'here');
		my $target = $r->pick('target', 'none', 'end', 'immediate', 'name', 'lsn', 'time', 'xid');
		my $action = $r->pick('action', 'promote', 'pause', 'shutdown');
		my $which = $r->real;
		my $inclusive = $r->pick('inclusive', 'on', 'off');
		$from = 'backup' if $c->{clean};
		if ($from eq 'backup')
		{
			remove_tree($c->{data});
			copy_dir($c->{out}, "$w->{dir}/backup", $c->{data});
			unlink "$c->{data}/postmaster.pid";
			$w->{checksums} = $w->{backup}{checksums};
			$c->limit_wal;
			delete @$c{qw(damaged lossy zeroed)};
		}
		$c->{clean} = 0;
		$c->{role} = 'primary';
		delete @$c{qw(recovery target)};
		return "from $from" if $target eq 'none' || !$w->{archiving};
		my @targets = @{ $w->{backup}{targets} };
		$target = 'end' if $target !~ /end|immediate/ && !@targets;
		$c->{recovery} = 'targeted';
		$c->{target} = { recovery_target_action => "'$action'", recovery_target_inclusive => $inclusive };
		$c->{target}{recovery_target} = "'immediate'" if $target eq 'immediate';
		$c->{target}{"recovery_target_$target"} = $targets[ int($which * @targets) ]{$target} if $target !~ /end|immediate/;
		return "from $from";
	}
};

# A copy of the files of a server that is down, put back later.
$EVENTS{snapshot} = {
	weight => 2,
	when => sub { return alone(@_) && down(@_); },
	run => sub {
		my ($w, $c) = @_;
		remove_tree("$w->{dir}/snapshot");
		copy_dir($c->{out}, $c->{data}, "$w->{dir}/snapshot");
		$w->{snapshot} = { map { $_ => $c->{$_} } qw(role recovery target clean damaged lossy zeroed) };
		$w->{snapshot_checksums} = $w->{checksums};
		return;
	}
};

$EVENTS{put_back} = {
	weight => 3,
	when => sub { return alone(@_) && down(@_) && $_[0]{snapshot}; },
	run => sub {
		my ($w, $c) = @_;
		remove_tree($c->{data});
		copy_dir($c->{out}, "$w->{dir}/snapshot", $c->{data});
		@$c{ keys %{ $w->{snapshot} } } = values %{ $w->{snapshot} };
		$w->{checksums} = $w->{snapshot_checksums};
		$c->limit_wal;
		unlink "$c->{data}/postmaster.pid";
		return;
	}
};

# ---------------------------------------------------------------------------
# Programs that change a cluster that is down
# ---------------------------------------------------------------------------

sub cleanly_down { return down(@_) && alone(@_) && $_[1]{clean} && !$_[1]{recovery} && !$_[1]{damaged}; }

$EVENTS{pg_checksums} = {
	weight => 2,
	when => \&cleanly_down,
	run => sub {
		my ($w, $c) = @_;
		for my $on ($w->{checksums} ? ('--disable', '--enable') : '--enable')
		{
			must_run($c->{out}, "$w->{bin}/pg_checksums", $on, '--no-sync', '-D', $c->{data});
		}
		$w->{checksums} = 1;
		return;
	}
};

$EVENTS{pg_resetwal} = {
	weight => 2,
	when => \&cleanly_down,
	run => sub { my ($w, $c) = @_; must_run($c->{out}, "$w->{bin}/pg_resetwal", '-D', $c->{data}); return }
};

1;
