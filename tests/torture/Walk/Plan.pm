
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Plan - the next events by what has not followed each other yet

=head1 DESCRIPTION

A model says of each event what it needs, and what it probably leaves.  A beam search
(Lowerre, "The Harpy Speech Recognition System", 1976) looks for the events after
which the most pairs and triples of Walk::Coverage are seen, where what comes later
counts less.  Only the first event of the result is used, because the next one is
planned from what has really happened.  So if the model is wrong, that costs time, and
nothing else.

=cut

package Walk::Plan;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

use Walk::Coverage;

our @EXPORT = qw(plan);

# What the search keeps of each length, or, if that finds little, in a second search; how
# far it looks; and what a pair counts that is seen a second later.
my @WIDTHS = (24, 150);
my ($LITTLE, $DEPTH, $LATER) = (2, 8, 0.85);

# After so many events while the server is stopped, a start is due, which judges them.
my $UNJUDGED = 6;

my @FLAGS = qw(up pool copy broken dropped without damaged clean hidden archived snapshot backup recovery alone other senders methods restarts lossy);
my %BIT = map { $FLAGS[$_] => 1 << $_ } 0 .. $#FLAGS;

# needs: flags, "!" for not; also "on" and "always" (the mode), "primary" and "standby".
# leaves: flags that are set or, with "!", cleared.  ways: arguments, with what the event
# leaves then.  seconds: how long it takes, if that is not next to nothing.
my %MODEL = (
	load => { needs => 'up primary !recovery', seconds => 0.4 },
	checkpoint => { needs => 'up' },
	scan => { needs => 'up' },
	copy_database => { needs => 'up primary !recovery', seconds => 0.2 },
	hotset => { needs => 'up' },
	stop => { needs => 'up', ways => { '' => '!up !clean', 'mode=fast' => '!up clean' }, seconds => 0.5 },
	crash => { needs => 'up', leaves => '!up !clean', seconds => 0.5 },
	kill_one => { needs => 'up', ways => { 'restart=0' => '!up !clean !restarts', 'restart=1' => '!clean restarts' }, seconds => 1 },
	stop_cut => { needs => 'up', leaves => '!up !clean', seconds => 0.5 },
	stop_at_store => { needs => 'up on pool !without', leaves => '!up !clean', seconds => 1 },
	fill_wal => { needs => 'up primary !recovery !restarts', leaves => '!up !clean', seconds => 1 },
	power_cut => { needs => 'up pool', leaves => '!up !clean', seconds => 0.5 },
	power_loss => { needs => '!up pool', seconds => 0.2 },
	backup => { needs => 'up primary !recovery alone senders !damaged', leaves => 'backup', seconds => 0.5 },
	mark => { needs => 'up primary !recovery backup' },
	promote => { needs => 'up standby recovery', leaves => '!recovery', role => 'primary', seconds => 0.3 },
	pause => { needs => 'up standby recovery' },
	resume => { needs => 'up recovery' },
	catch_up => { needs => 'up standby recovery', seconds => 0.3 },
	standby_settings => { needs => 'standby recovery' },
	demote => { needs => '!up primary !recovery other', leaves => 'recovery', role => 'standby' },
	rewind => { needs => '!up primary !recovery other', leaves => 'recovery !clean', role => 'standby', seconds => 0.3 },
	start => { needs => '!up', leaves => 'up !clean', seconds => 1.3 },
	start_cut => { needs => '!up', leaves => '!clean', seconds => 0.3 },
	start_at_store => { needs => '!up on pool !without', leaves => '!clean', seconds => 0.5 },
	other_run => { needs => '!up', ways => { '' => '!clean', 'end=fast' => 'clean' }, seconds => 0.5 },
	mode => { needs => '!up', ways => { map { ("to=$_" => '') } @Walk::Coverage::MODES } },
	settings => { needs => '!up' },
	wal_method => { needs => 'methods' },
	restore => { needs => '!up alone backup', ways => { '' => '!clean !damaged !recovery', 'from=backup,target=immediate,action=pause' => '!clean !damaged recovery' }, seconds => 0.1 },
	snapshot => { needs => '!up alone', leaves => 'snapshot', seconds => 0.1 },
	put_back => { needs => '!up alone snapshot', seconds => 0.1 },
	pg_checksums => { needs => '!up alone clean !recovery !damaged', seconds => 0.2 },
	pg_resetwal => { needs => '!up alone clean !recovery !damaged', seconds => 0.1 },
	damage_wal => { needs => '!up !clean', leaves => 'lossy' },
	damage_file => { needs => '!up', ways => { 'pool_lost=1' => 'damaged !pool !broken !dropped', 'pool_lost=0' => 'damaged' } },
	repair_file => { needs => '!up damaged', leaves => '!damaged' },
	archive_hide => { needs => 'archived !hidden', leaves => 'hidden' },
	archive_fill => { needs => 'hidden', leaves => '!hidden' },
	pool_break => { needs => '!up on pool !broken', leaves => 'broken' },
	pool_mend => { needs => 'broken', leaves => '!broken !dropped pool' },
	pool_lose => { needs => '!up !broken', leaves => '!pool' },
	pool_drop => { needs => '!up pool !broken', leaves => 'broken dropped !pool' },
	pool_copy => { needs => '!up pool !broken', leaves => 'copy' },
	pool_back => { needs => '!up copy !broken', leaves => 'pool' },
	pool_damage => { needs => '!up pool !broken' },
	reboot => { needs => '!up pool !broken', seconds => 0.6 });

# The table, with masks of bits.
my %EVENT = map { $_ => compile($_, $MODEL{$_}) } keys %MODEL;

sub masks
{
	my (@flags) = @_;
	my ($set, $clear) = (0, 0);
	for (@flags)
	{
		if (/^!(.*)/) { $clear |= $BIT{$1} // die "no such flag: $1" }
		else { $set |= $BIT{$_} // die "no such flag: $_" }
	}
	return ($set, $clear);
}

sub compile
{
	my ($name, $model) = @_;
	my %e = (name => $name, seconds => $model->{seconds} // 0.05, to => $model->{role});
	my @flags;
	for (split ' ', $model->{needs})
	{
		if (/^(on|always)$/) { $e{mode} = $1 }
		elsif (/^(primary|standby)$/) { $e{role} = $1 }
		else { push @flags, $_ }
	}
	@e{qw(yes no)} = masks(@flags);
	my $ways = $model->{ways} // { '' => $model->{leaves} // '' };
	for my $args (sort keys %$ways)
	{
		my ($set, $clear) = masks(split ' ', $ways->{$args});
		push @{ $e{ways} }, { args => $args, set => $set, clear => $clear, mode => $name eq 'mode' ? $args =~ s/to=//r : undef };
	}
	return \%e;
}

# How many events a start has not judged yet: those that need a stopped server count.
sub unjudged_after
{
	my ($unjudged, $e) = @_;
	return $e->{name} eq 'start' ? 0 : $unjudged + ($e->{no} & $BIT{up} ? 1 : 0);
}

# A cluster as it is now.
sub state_of
{
	my ($w, $c) = @_;
	my @last = @{ $c->{history} // [] };
	my %have = (
		up => $c->{up}, pool => -e "$c->{pool}/pool", copy => -d "$c->{pool}.copy", broken => $c->{broken}, dropped => ($c->{broken} // '') eq 'dropped',
		without => $c->{without}, damaged => $c->{damaged}, clean => $c->{clean}, hidden => $w->{hidden},
		archived => $w->{archiving} && scalar(@{ [ Walk::Events::archived($w) ] }), snapshot => $w->{snapshot}, backup => $w->{backup}, recovery => $c->{recovery},
		alone => scalar(Walk::Events::alone($w)), other => scalar(Walk::Events::other_primary($w, $c)), senders => $w->{senders},
		methods => @{ $w->{methods} } > 1, restarts => $c->{conf}{restart_after_crash}, lossy => $c->{lossy});
	my $flags = 0;
	for (@FLAGS) { $flags |= $BIT{$_} if $have{$_} }
	my $unjudged = 0;
	$unjudged = unjudged_after($unjudged, $EVENT{$_}) for @last;
	return { mode => Walk::Coverage::mode_of($c), role => $c->{role}, last => $last[-1] // '', before => $last[-2] // '',
		flags => $flags, unjudged => $unjudged, value => 0, seconds => 0 };
}

# Does the model think that this can happen?
sub possible
{
	my ($s, $e) = @_;
	return 0 if ($s->{flags} & $e->{yes}) != $e->{yes} || $s->{flags} & $e->{no};
	return 0 if $e->{role} && $e->{role} ne $s->{role} || $e->{mode} && ($e->{mode} eq 'always' ? $s->{mode} ne 'always' : $s->{mode} eq 'off');
	return $e->{name} ne 'pool_mend' || !($s->{flags} & $BIT{dropped} && $s->{flags} & $BIT{up});
}

sub start_is_due { my ($s) = @_; return $s->{unjudged} >= $UNJUDGED && !($s->{flags} & $BIT{up}); }

sub seen_on_the_way
{
	my ($s, $key) = @_;
	for (my $p = $s; $p; $p = $p->{parent}) { return 1 if $p->{new} && $p->{new}{$key} }
	return 0;
}

# The state after an event, with what it is worth to get there.
sub follow
{
	my ($missing, $s, $e, $way) = @_;
	my %new;
	if ($s->{last} ne '')
	{
		my @keys = "pair $s->{mode} $s->{role} $s->{last} $e->{name}";
		push @keys, "triple $s->{mode} $s->{role} $s->{before} $e->{name}" if $s->{last} eq 'start';
		for my $key (@keys) { $new{$key} = 1 if $missing->{$key} && !seen_on_the_way($s, $key) }
	}
	my $flags = $s->{flags} & ~$way->{clear} | $way->{set};
	$flags |= $BIT{lossy} if $e->{name} eq 'demote' && !($flags & $BIT{clean});
	if ($e->{name} =~ /^start/)
	{
		$flags &= ~$BIT{without};
		$flags |= $flags & $BIT{broken} ? $BIT{without} : $s->{mode} ne 'off' ? $BIT{pool} : 0;
	}
	my $seconds = $s->{seconds} + $e->{seconds};
	return { mode => $way->{mode} // $s->{mode}, role => $e->{to} // $s->{role}, last => $e->{name}, before => $s->{last}, flags => $flags,
		unjudged => unjudged_after($s->{unjudged}, $e), seconds => $seconds, parent => $s, new => \%new,
		value => $s->{value} + (keys(%new) + ($e->{name} eq 'promote' ? $missing->{another} : 0)) * $LATER**$seconds,
		first => $s->{first} // $e->{name} . ($way->{args} ne '' ? ":$way->{args}" : '') };
}

# The best first event for a cluster, with arguments if it needs some, and what it is
# worth, by what is missing (a hash of "pair mode role first next" and of triples).  names
# are the events that can happen in these walks, and now are those that can happen now.
sub plan
{
	my ($missing, $w, $c, $names, $now) = @_;
	my ($first, $value);

	# only another primary allows these
	local $missing->{another} = (grep { /(?:demote|rewind)/ && $missing->{$_} } keys %$missing) ? 1 : 0;
	for my $width (@WIDTHS)
	{
		($first, $value) = search($missing, state_of($w, $c), $names, $now, $width);
		last if $value > $LITTLE;
	}
	return ($first, $value);
}

sub search
{
	my ($missing, $root, $names, $now, $width) = @_;
	my @beam = ($root);
	my $best = $root;
	for my $depth (1 .. $DEPTH)
	{
		my %next;
		for my $s (@beam)
		{
			# once WAL is damaged, other pairs do not count
			next if $s->{flags} & $BIT{lossy} && $depth > 1 && $s->{last} ne 'damage_wal';
			for my $name (@{ $depth == 1 ? $now : $names })
			{
				my $e = $EVENT{$name} // next;
				next if $depth > 1 && !possible($s, $e) || $name ne 'start' && start_is_due($s);

				# what the model believes in vain must not be waited for
				next if $depth == 1 && $name eq $s->{last} && !$missing->{"pair $s->{mode} $s->{role} $name $name"};
				next if $s->{last} ne '' && Walk::Coverage::impossible_pair($s->{mode}, $s->{role}, $s->{last}, $name);
				for my $way (@{ $e->{ways} })
				{
					next if defined $way->{mode} && $way->{mode} eq $s->{mode};
					my $t = follow($missing, $s, $e, $way);
					my $key = "$t->{mode} $t->{role} $t->{flags} $t->{last} " . ($t->{last} eq 'start' ? $t->{before} : '');
					$next{$key} = $t if !$next{$key} || $next{$key}{value} < $t->{value};
				}
			}
		}
		@beam = sort { $b->{value} <=> $a->{value} || $a->{seconds} <=> $b->{seconds} } map { $next{$_} } sort keys %next;
		$#beam = $width - 1 if @beam > $width;
		$best = $beam[0] if @beam && $beam[0]{value} > $best->{value};
	}
	return ($best->{first}, $best->{value});
}

1;
