
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Events::Standbys - promotion, rewind, delay, pause

=head1 DESCRIPTION

Part of the table of events; see Walk::Events.

=cut

package Walk::Events;

use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree make_path);
use Time::HiRes qw(sleep time);

use Walk::Ask;
use Walk::Oracle;
use Walk::Util;

our %EVENTS;

$EVENTS{promote} = {

	# often where the primary is gone
	weight => sub { my ($w, @c) = @_; return (grep { $_->{upstream} && !$w->{clusters}{ $_->{upstream} }{up} } @c) ? 15 : 3 },

	# without an archive, who is promoted does not know whose timeline has a number already
	when => sub { return standby_up(@_) && ($_[0]{archiving} || !$_[0]{promoted}); },
	run => sub {
		my ($w, $c, $r) = @_;
		$w->{promoted} = 1;

		# a promotion may cancel the statement that asks for it
		my $deadline = time + 60;
		eval { $c->sql('SELECT pg_promote(true, 100)') };
		sleep 0.05 while !defined $c->ended && eval { $c->in_recovery } // 1 and time < $deadline;
		return 'ended' if !$c->{up};
		die "$c->{name} is not promoted\n" if $c->in_recovery;
		delete @$c{qw(recovery upstream stream)};
		$c->{role} = 'primary';
		report($c, check_invariants($c));
		return;
	}
};

sub follow
{
	my ($c, $other) = @_;
	$c->{role} = 'standby';
	$c->{recovery} = 'standby';
	$c->{upstream} = $other->{name};
	$c->{stream} = 1;
	return;
}

# A primary becomes a standby of another one, as it is.  If it has crashed, PostgreSQL may
# replay more of its WAL than the new primary has, and not notice.  So its copy may
# be wrong as well, as if its WAL were damaged.
$EVENTS{demote} = {
	weight => 25,
	when => sub { return down(@_) && $_[1]{role} eq 'primary' && !$_[1]{recovery} && other_primary(@_); },
	run => sub {
		my ($w, $c) = @_;
		$c->{lossy} = 1 if !$c->{clean};
		follow($c, other_primary($w, $c));
		return "follows $c->{upstream}";
	}
};

$EVENTS{rewind} = {
	weight => 10,
	when => sub { return down(@_) && $_[1]{role} eq 'primary' && !$_[1]{recovery} && other_primary(@_); },
	run => sub {
		my ($w, $c) = @_;
		my $other = other_primary($w, $c);
		$other->sql('CHECKPOINT');
		$c->write_conf;
		my $size = -s $c->{out} // 0;
		my $rc = run_to($c->{out}, "$w->{bin}/pg_rewind", '-D', $c->{data}, '-c', "--source-server=host=$w->{sockets} port=$other->{port} user=postgres dbname=postgres");
		my ($why) = reverse slurp($c->{out}, $size) =~ /(pg_rewind: .*)/g;
		if ($rc == 0) { follow($c, $other); $c->{clean} = 0; unlink "$c->{data}/postmaster.pid" }
		return $rc == 0 ? "follows $other->{name}" : "refused: " . ($why // $rc);
	}
};

$EVENTS{standby_settings} = {
	weight => 4,
	when => sub { return ($_[1]{recovery} // '') eq 'standby'; },
	run => sub {
		my ($w, $c, $r) = @_;
		my $delay = $r->pick('delay', '0', '0', '1h');
		$c->{conf}{recovery_min_apply_delay} = $delay;
		$c->reload('recovery_min_apply_delay', $delay) if $c->{up};
		my $stream = $r->chance('stream', 0.7);
		$c->{stream} = $stream if !$c->{up} && $w->{archiving};
		return;
	}
};

$EVENTS{pause} = { weight => 3, when => \&standby_up, run => sub { $_[1]->sql('SELECT pg_wal_replay_pause()'); return } };

$EVENTS{resume} = {
	weight => 3,
	when => sub { return $_[1]{up} && $_[1]{recovery}; },
	run => sub {
		my ($w, $c, $r) = @_;
		return 'not in recovery' if !$c->in_recovery;
		$c->sql('SELECT pg_wal_replay_resume()');
		return if $c->{recovery} eq 'standby';
		my $deadline = time + 60;
		sleep 0.05 while $c->in_recovery && time < $deadline;
		after_start($w, $c);
		report($c, check_invariants($c));
		return;
	}
};

# Wait until a standby has it all.
$EVENTS{catch_up} = {
	weight => 3,
	when => \&standby_up,
	run => sub {
		my ($w, $c) = @_;
		my $goal = goal_of($c) // return 'nobody sends';
		my $deadline = time + 3;
		sleep 0.02
		  while $c->sql(q{SELECT coalesce(pg_last_wal_replay_lsn() - '0/0', 0)}) < $goal && time < $deadline;
		return;
	}
};

1;
