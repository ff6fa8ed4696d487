
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Events::Damage - what befalls files

=head1 DESCRIPTION

Part of the table of events; see Walk::Events.

=cut

package Walk::Events;

use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree make_path);
use Time::HiRes qw(sleep time);

use Walk::Damage;
use Walk::Util;

our %EVENTS;

$EVENTS{damage_wal} = {
	weight => sub { my ($w, @c) = @_; return (grep { $_->{role} eq 'primary' && Walk::Events::other_primary($w, $_) } @c) ? 20 : 4 },
	when => sub { return down(@_) && !$_[1]{clean}; },
	run => sub {
		my ($w, $c, $r) = @_;
		my ($at, $within) = ($r->fraction('at', 1), $r->fraction('within', 1));
		$c->{lossy} = 1;
		return damage_wal($c, $at, $within, $r->pick('how', 'flip', 'zero', 'remove'), $r->chance('archive', 0.8)) // 'nothing to damage';
	}
};

# A list, since sort() returns nothing in scalar context.
sub archived { my @names = sort grep { /^[0-9A-F]{24}$/ } map { s{.*/}{}r } glob("$_[0]{archive}/*"); return @names; }

$EVENTS{archive_hide} = {
	weight => 3,
	when => sub { return $_[0]{archiving} && !$_[0]{hidden} && archived($_[0]); },
	run => sub {
		my ($w, $c, $r) = @_;
		my @names = archived($w);
		my $at = $r->fraction('at', 1);
		my $name = $names[ int($at * @names) ];
		make_path("$w->{dir}/hidden");
		rename("$w->{archive}/$name", "$w->{dir}/hidden/$name") or die "$name: $!";
		$w->{hidden} = $name;
		return $name;
	}
};

$EVENTS{archive_fill} = {
	weight => 5,
	when => sub { return $_[0]{hidden}; },
	run => sub {
		my ($w) = @_;
		my $name = delete $w->{hidden};
		rename("$w->{dir}/hidden/$name", "$w->{archive}/$name") or die "$name: $!";
		return $name;
	}
};

$EVENTS{damage_file} = {
	weight => 5,
	when => \&down,
	run => sub {
		my ($w, $c, $r) = @_;
		my $kind = $r->pick('kind', 'header', 'data');
		my $at = $r->fraction('at', 1);
		my $lose = $r->chance('pool_lost', 0.6);
		$kind = 'header' if !$w->{checksums};
		mend_pool($c) if $lose;
		remove_tree($c->{pool}) if $lose && !$w->{whole};
		return damage_relation($c, $at, $kind);
	}
};

$EVENTS{repair_file} = {
	weight => 25,
	when => sub { return down(@_) && $_[1]{damaged}; },
	run => sub { repair_relation($_[1]); return }
};

# With power cuts the image of the media would have to be treated alike.
sub plain_pool { return down(@_) && !$_[0]{whole} && !$_[1]{broken}; }

# The pool cannot be used: how that comes, and how it goes.
my %BREAK = (
	directory => [ sub { chmod 0777, $_[0] }, sub { chmod 0700, $_[0] } ],
	unreadable => [ sub { chmod 0, "$_[0]/pool" }, sub { chmod 0600, "$_[0]/pool" } ],
	unwritable => [ sub { chmod 0400, "$_[0]/pool" }, sub { chmod 0600, "$_[0]/pool" } ],
	two_names => [ sub { link "$_[0]/pool", "$_[0]/pool.link" }, sub { unlink "$_[0]/pool.link" } ]);

$EVENTS{pool_break} = {
	weight => 5,
	when => sub { return plain_pool(@_) && -e "$_[1]{pool}/pool" && $_[1]{conf}{'pcache.mode'} ne 'off'; },
	run => sub {
		my ($w, $c, $r) = @_;
		$c->{broken} = $r->pick('how', sort keys %BREAK);
		$BREAK{ $c->{broken} }[0]->($c->{pool}) or die "$c->{pool}: $!";
		return;
	}
};

# A server that runs meanwhile has no pool before it starts again, or a process crashes.
$EVENTS{pool_mend} = {
	weight => 25,
	when => sub { return $_[1]{broken} && ($_[1]{broken} ne 'dropped' || down(@_)); },
	run => sub { my ($w, $c) = @_; mend_pool($c); return }
};

sub mend_pool
{
	my ($c) = @_;
	my $how = delete $c->{broken} or return;

	# files that were put back have the record of the pool that was dropped
	return -e "$c->{pool}/pool" ? undef : $c->init_pool('--force') if $how eq 'dropped';
	$BREAK{$how}[1]->($c->{pool}) or die "$c->{pool}: $!";
	return;
}

$EVENTS{pool_lose} = {
	weight => 2,
	when => \&plain_pool,
	run => sub { my ($w, $c) = @_; remove_tree($c->{pool}); return }
};

# The user takes the pool away, and makes a new one later (pool_mend).
$EVENTS{pool_drop} = {
	weight => 2,
	when => sub { return plain_pool(@_) && -e "$_[1]{pool}/pool"; },
	run => sub {
		my ($w, $c) = @_;
		$c->{broken} = 'dropped';

		# a start that was cut off may have left a pool that the record does not name
		my $rc = tool($c, {}, 'drop', '--force');
		$w->problem("$c->{name}: pg_pcache drop: exit status $rc: " . tool_said($c)) if $rc || -e "$c->{pool}/pool";
		return;
	}
};

$EVENTS{pool_copy} = {
	weight => 2,
	when => sub { return plain_pool(@_) && -d $_[1]{pool}; },
	run => sub {
		my ($w, $c) = @_;
		remove_tree("$c->{pool}.copy");
		copy_dir($c->{out}, $c->{pool}, "$c->{pool}.copy", '--sparse=always');
		return;
	}
};

$EVENTS{pool_back} = {
	weight => 3,
	when => sub { return plain_pool(@_) && -d "$_[1]{pool}.copy"; },
	run => sub {
		my ($w, $c) = @_;
		remove_tree($c->{pool});
		copy_dir($c->{out}, "$c->{pool}.copy", $c->{pool}, '--sparse=always');
		return;
	}
};

$EVENTS{pool_damage} = {
	weight => 3,
	when => sub { return plain_pool(@_) && -e "$_[1]{pool}/pool"; },
	run => sub {
		my ($w, $c, $r) = @_;
		damage_pool($c, $r->pick('where', 'superblock', 'copy', 'sighting', 'errors', 'entries', 'entries', 'cut', 'hole'), $r);
		return;
	}
};

1;
