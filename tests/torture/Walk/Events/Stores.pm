
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Events::Stores - cut off at a store to the pool

=head1 DESCRIPTION

Part of the table of events; see Walk::Events.

=cut

package Walk::Events;

use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree make_path);
use Time::HiRes qw(sleep time);

use FileCut;
use LibraryPool;
use Programs;
use Walk::Damage;
use Walk::Load;
use Walk::Trap;
use Walk::Util;

our %EVENTS;

# Offsets to watch: the same field of up to four entries, or a place in the superblock, its
# copy, or what the server last saw of its cluster.
sub store_points
{
	my ($c, $of, $field, $r) = @_;
	return +{ superblock => 0, copy => 4096, sighting => 8192 + 256 }->{$of} + $field if $of ne 'entry';
	my ($same, $others) = entry_slots("$c->{pool}/pool");
	my @points;
	for my $slots ($same, $others)
	{
		push @points, 2 * 1024 * 1024 + 64 * splice(@$slots, int($r->real * @$slots), 1) + $field
		  while @points < 4 && @$slots;
	}
	return @points;
}

sub draw_store
{
	my ($c, $r) = @_;
	my $of = $r->pick('of', 'entry', 'entry', 'superblock', 'copy', 'sighting');
	my $field = $r->pick('field', 0, 0, 8, 16, 24, 32, 56);
	$field = $r->pick('place', 112, 120, 128, 136, 152, 176, 216, 4080) if $of =~ /superblock|copy/;
	return (points => [ store_points($c, $of, $field, $r) ], hits => $r->pick('hits', 1, 1, 2, 3));
}

sub has_pool { return !$_[1]{without} && -r "$_[1]{pool}/pool" && $_[1]{conf}{'pcache.mode'} ne 'off' && trap_works(); }

$EVENTS{stop_at_store} = {
	weight => 5,
	when => sub { return up(@_) && has_pool(@_); },
	run => sub {
		my ($w, $c, $r) = @_;

		# slots get other pages
		my $read = $r->pick('read', 'none', 'flat', 'flat', 'read');
		run_load($c, $r->fraction('seconds', 0.5), kind => $read, sync => 'on', seed => $r->seed, clients => 3) if $read ne 'none' && $c->{role} eq 'primary';
		my $said = trap_store($c, draw_store($c, $r), go => sub { kill 'INT', $c->{pid} });
		$c->{clean} = $said =~ /its end/ && ($c->{exit} // '') eq '0' ? 1 : 0;
		return $said;
	}
};

$EVENTS{start_at_store} = {
	weight => 5,
	when => sub { return down(@_) && has_pool(@_); },
	run => sub {
		my ($w, $c, $r) = @_;
		my %store = draw_store($c, $r);
		$c->spawn;
		my $asked = 0;
		my $said = trap_store($c, %store, fork => 1, done => sub { return $asked++ % 50 == 0 && $c->log_since =~ /ready to accept/ });
		$c->{clean} = 0;
		after_start($w, $c);
		return $said;
	}
};

# ---------------------------------------------------------------------------
# Power cuts, with the shim of tests/powercut: while the server is down, the files have
# lost nothing
# ---------------------------------------------------------------------------

sub cut_power
{
	my ($c, $r) = @_;
	my $size = -s $c->{out} // 0;
	$c->{power_lost} = 1;
	must_run($c->{out}, "$c->{walk}{whole}/powercut", "$c->{pool}/pool", "$c->{pool}.image", $r->seed);
	return slurp($c->{out}, $size) =~ s/\s+/ /gr;
}

$EVENTS{power_cut} = {
	weight => 20,
	when => sub { return $_[0]{whole} && up(@_) && -e "$_[1]{pool}.image"; },
	run => sub {
		my ($w, $c, $r) = @_;
		under_load($c, $r, sub { $c->kill_all });
		return ($c->{run_plain} ? '' : cut_files_of($c, $r) . '; ') . cut_power($c, $r);
	}
};

sub cut_files_of
{
	my ($c, $r) = @_;
	srand($r->seed);
	my ($began, $seen_at) = (time, (last_sighting("$c->{pool}/pool"))[0]);
	my $said = cut_files("$c->{pool}.files", cut_units($c->{conf}), $c->{data}, $c->{pool});
	unlink "$c->{data}/postmaster.pid";
	spew("$c->{pool}.image.cut", join(' ', map { sprintf '%d', 1e9 * $_ } $began - 0.01, time, $seen_at));
	die "the pool itself was not durable\n" if !-s "$c->{pool}/pool";
	truncate("$c->{pool}.image", -s "$c->{pool}/pool") or die "$c->{pool}.image: $!";
	return $said;
}

# While the server is down.
$EVENTS{power_loss} = {
	weight => 10,
	when => sub { return $_[0]{whole} && down(@_) && -e "$_[1]{pool}.image"; },
	run => sub { my ($w, $c, $r) = @_; return cut_power($c, $r) }
};

1;
