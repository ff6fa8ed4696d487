
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Coverage - which events have followed each other, and which are still to

=head1 DESCRIPTION

A pair is two events that happen to one cluster one after the other, whatever
happens to others in between.  A triple is an event, a start that is judged by a
copy, and the next event.  Both are counted by the mode, the role and the WAL
method that the cluster has when the last of these events begins.

@IMPOSSIBLE is the one place that says what cannot follow what, and why.  If such
a pair happens nevertheless, that is a failure of the walk, so the list cannot
hide anything.  @BY_CHANCE lists in the same form what may happen, but only if
something else goes wrong; it belongs to no goal.

Once WAL of a cluster was damaged, its copy may be as wrong as the cluster
itself.  Then only the pairs and triples with that damage are counted.

Counts are in a directory, in the file "counts"; "walks" there has the list of
events of each walk, as walk --events takes it.  Many walks may add to them at
the same time.

=cut

package Walk::Coverage;

use strict;
use warnings FATAL => 'all';

use Fcntl qw(:flock);
use File::Path qw(make_path);
use List::Util qw(sum);
use Text::Wrap qw(wrap);

use Programs;
use Walk::Events;

our @MODES = qw(always planned_restart off);
our @ROLES = qw(primary standby);

# ---------------------------------------------------------------------------
# What cannot be
# ---------------------------------------------------------------------------

# Events by what they need, and by what they leave.
our %SET = (
	'needs a running server' => 'load checkpoint scan copy_database stop crash fill_wal kill_one stop_cut stop_at_store power_cut promote pause resume catch_up backup mark hotset',
	'needs a stopped server' => 'mode settings start start_cut other_run start_at_store power_loss demote rewind restore snapshot put_back pg_checksums pg_resetwal damage_wal damage_file repair_file pool_break pool_lose pool_drop pool_copy pool_back pool_damage reboot',
	'leaves it running' => 'load checkpoint scan copy_database promote pause resume catch_up backup mark hotset',
	'leaves it stopped' => 'stop crash stop_cut stop_at_store power_cut mode settings start_cut other_run start_at_store power_loss demote rewind restore snapshot put_back pg_checksums pg_resetwal damage_wal damage_file repair_file pool_break pool_lose pool_drop pool_copy pool_back pool_damage reboot',
	'writes' => 'load copy_database fill_wal backup mark',
	'for one cluster' => 'backup mark restore snapshot put_back pg_checksums pg_resetwal',
	'for several clusters' => 'promote pause catch_up standby_settings demote rewind',
	'for primaries' => 'load copy_database fill_wal backup mark restore snapshot put_back pg_checksums pg_resetwal demote rewind',
	'for standbys' => 'promote pause catch_up standby_settings',
	'stays a primary' => 'load copy_database fill_wal backup mark restore snapshot put_back pg_checksums pg_resetwal',
	'stays a standby' => 'pause catch_up standby_settings',
	'unclean' => 'crash stop_cut start_cut start_at_store fill_wal kill_one restore rewind damage_wal power_cut',
	'wants a clean stop' => 'pg_checksums pg_resetwal',
	'no recovery goes on' => 'load copy_database fill_wal backup mark pg_checksums pg_resetwal',
	'of a pool in order' => 'pool_break pool_lose pool_drop pool_copy pool_back pool_damage reboot',
	'of a pool' => 'pool_break pool_damage pool_copy pool_drop reboot start_at_store',
	'asks the cache' => 'pool_break stop_at_store start_at_store',
	'cuts power' => 'power_cut power_loss',
	'moves files' => 'fill_wal pool_break pool_mend pool_lose pool_drop pool_copy pool_back pool_damage reboot');

# First event, next event (an event, several, a set in brackets, * for any; modes and
# roles, if not in all), and why not.  "around": nor with a start between them.
our @IMPOSSIBLE = (
	{ first => '[leaves it stopped]', next => '[needs a running server]', why => 'the server is stopped' },
	{ first => '[leaves it running]', next => '[needs a stopped server]', why => 'the server runs' },
	{ first => '*', next => '[for primaries]', role => 'standby', why => 'not on a standby' },
	{ first => '*', next => '[for standbys]', role => 'primary', why => 'only on a standby' },
	{ first => '[stays a primary]', next => '*', role => 'standby', why => 'the first one needs a primary, and it stays one' },
	{ first => '[stays a standby]', next => '*', role => 'primary', why => 'the first one needs a standby, and it stays one' },
	{ first => 'demote', next => '*', role => 'primary', why => 'it is a standby then' },
	{ first => '[for one cluster]', next => '[for several clusters]', around => 1, why => 'backups, snapshots and what rewrites files are for a cluster without standbys' },
	{ first => '[for several clusters]', next => '[for one cluster]', around => 1, why => 'the same' },
	{ first => '[unclean]', next => '[wants a clean stop]', why => 'the program asks for a clean stop before' },
	{ first => '[wants a clean stop]', next => 'damage_wal', why => 'after a clean stop nobody reads that WAL' },
	{ first => 'damage_file', next => 'pg_checksums pg_resetwal', why => 'files that are damaged are repaired first' },
	{ first => 'pg_checksums pg_resetwal repair_file', next => 'repair_file', why => 'nothing is damaged' },
	{ first => 'pool_break pool_drop', next => '[of a pool in order]', why => 'the walk itself needs the pool for that' },
	{ first => 'pool_lose pool_copy pool_back pool_damage reboot pool_mend', next => 'pool_mend', why => 'nothing is broken' },
	{ first => 'pool_lose', next => '[of a pool]', why => 'there is no pool' },
	{ first => 'reboot', next => '[of a pool]', mode => 'off', why => 'there is no pool, because load makes none in that mode' },
	{ first => 'pool_drop', next => 'start_at_store', why => 'the same' },
	{ first => 'pool_mend', next => 'stop_at_store', why => 'a server that was started with a broken pool runs without it' },
	{ first => 'stop_at_store', next => 'pool_mend', role => 'standby', why => 'the server had its pool; only files that were put back, which is for a primary, bring a dropped one back' },
	{ first => 'promote resume', next => 'resume', role => 'primary', why => 'it is not in recovery any more' },
	{ first => '*', next => '[asks the cache]', mode => 'off', why => 'nobody asks the pool in that mode' },
	{ first => '[asks the cache]', next => '*', mode => 'off', why => 'the same' },
	{ first => '[writes]', next => 'resume', why => 'who writes is not in recovery' },
	{ first => 'kill_one', next => 'fill_wal', why => 'the server is stopped, or would restart by itself after the PANIC' },
	{ first => '[cuts power]', next => '[moves files]', around => 1, why => 'walks with power cuts leave the pool to the shim' },
	{ first => '[moves files]', next => '[cuts power]', around => 1, why => 'the same' },
);

# Of triples: what is before the start, and what after it.
our @IMPOSSIBLE_AROUND = (
	(grep { $_->{around} } @IMPOSSIBLE),
	{ first => '[no recovery goes on]', next => 'resume', role => 'primary', why => 'who writes is not in recovery, and does not get there by a restart' },
);

our @BY_CHANCE = (
	{ first => 'start', next => '[needs a stopped server]', why => 'a start ends without a server if WAL is missing, or at a recovery target' },
	{ first => 'promote', next => '*', role => 'standby', why => 'a server that ends while it is promoted is a standby still' },
	{ first => 'rewind', next => '*', role => 'primary', why => 'pg_rewind may refuse' },
	{ first => 'archive_hide', next => 'archive_hide', why => 'another cluster has filled the gap meanwhile' },
	{ first => 'archive_fill', next => 'archive_fill', why => 'another cluster has made a gap meanwhile' },
);

sub expand
{
	my ($text) = @_;
	my %names;
	while ($text =~ /\[([^\]]+)\]|(\S+)/g)
	{
		if (defined $1) { $names{$_} = 1 for split ' ', $SET{$1} // die "no such set: $1" }
		else { $names{$2} = 1 }
	}
	for my $name (keys %names) { die "no such event: $name" if $name ne '*' && !$EVENTS{$name} }
	return \%names;
}

my %cache;

# The rule of a list that forbids this, or nothing.
sub rule
{
	my ($rules, $mode, $role, $first, $next) = @_;
	my $key = "$rules $mode $role $first $next";
	return $cache{$key} if exists $cache{$key};
	my $found;
	for my $r (@$rules)
	{
		$r->{firsts} //= expand($r->{first});
		$r->{nexts} //= expand($r->{next});
		next if defined $r->{mode} && $r->{mode} ne $mode || defined $r->{role} && $r->{role} ne $role;
		next if !$r->{firsts}{$first} && !$r->{firsts}{'*'} || !$r->{nexts}{$next} && !$r->{nexts}{'*'};
		$found = $r;
		last;
	}
	return $cache{$key} = $found;
}

sub impossible_pair { my (@pair) = @_; return rule(\@IMPOSSIBLE, @pair); }
sub wanted_pair { my (@pair) = @_; return !rule(\@IMPOSSIBLE, @pair) && !rule(\@BY_CHANCE, @pair); }

sub wanted_triple
{
	my ($mode, $role, $first, $next) = @_;
	return wanted_pair($mode, $role, $first, 'start') && wanted_pair($mode, $role, 'start', $next)
	  && !rule(\@IMPOSSIBLE_AROUND, $mode, $role, $first, $next);
}

# All pairs of these names, in each mode and role: [ mode, role, first, next ].
sub all_pairs
{
	my (@names) = @_;
	my @all;
	for my $mode (@MODES)
	{
		for my $role (@ROLES)
		{
			for my $first (@names) { push @all, map { [ $mode, $role, $first, $_ ] } @names }
		}
	}
	return @all;
}

# Those that are wanted of a kind.
sub wanted
{
	my ($kind, @names) = @_;
	my $wanted = $kind eq 'pair' ? \&wanted_pair : \&wanted_triple;
	return grep { $wanted->(@$_) } all_pairs(@names);
}

# ---------------------------------------------------------------------------
# Counting
# ---------------------------------------------------------------------------

# A line of "counts" is: kind, mode, role, WAL method, first, next, how often.
sub new
{
	my ($class, $dir, $whole) = @_;
	make_path($dir);
	my $self = bless { dir => $dir, whole => $whole, counts => {}, new => {}, seen => {} }, $class;
	$self->read_counts;
	return $self;
}

# The events of these walks.
sub names { my ($self) = @_; return grep { $self->{whole} || !/^power_/ } sort keys %EVENTS; }

sub read_counts
{
	my ($self) = @_;
	$self->{counts} = {};
	$self->{seen} = {};
	for my $line (split /\n/, slurp("$self->{dir}/counts"))
	{
		my (@f) = split ' ', $line;
		my $n = pop @f;
		$self->{counts}{"@f"} = $n;
		$self->see(@f);
	}
	return;
}

sub see
{
	my ($self, $kind, $mode, $role, $method, $first, $next) = @_;
	$self->{seen}{"$kind $mode $role $first $next"}++;
	delete $self->{lacking}{"$kind $mode $role $first $next"} if $self->{lacking};
	$self->{seen}{"$kind $method $first $next"}++;
	return;
}

sub mode_of { my ($c) = @_; return $c->{conf}{'pcache.mode'} // 'always'; }
sub method_of { my ($c) = @_; return $c->{conf}{wal_sync_method} // 'fdatasync'; }

# What will have been seen if this event happens to the cluster now.
sub seen_by
{
	my ($c, $name) = @_;
	my ($before, $last) = @{ $c->{history} // [] }[ -2, -1 ];
	return if !defined $last;
	return if $c->{lossy} && !($last eq 'damage_wal' || $name eq 'damage_wal' || $last eq 'start' && ($before // '') eq 'damage_wal');
	my @seen = ([ 'pair', mode_of($c), $c->{role}, method_of($c), $last, $name ]);
	push @seen, [ 'triple', mode_of($c), $c->{role}, method_of($c), $before, $name ] if defined $before && $last eq 'start';
	return @seen;
}

# An event is about to happen; returns why it cannot, if that is what the list says.
sub note
{
	my ($self, $c, $name) = @_;
	my $why;
	for my $s (seen_by($c, $name))
	{
		$self->{new}{"@$s"}++;
		$self->see(@$s);
		my $rule = $s->[0] eq 'pair' ? impossible_pair(@$s[ 1, 2, 4, 5 ]) : undef;
		$why //= "$s->[5] after $s->[4] ($s->[1], $s->[2]) is listed as impossible: $rule->{why}" if $rule;
	}
	push @{ $c->{history} }, $name;
	return $why;
}

# Add what was counted to the files, with a line for a walk that has ended, and read
# what others have.
sub merge
{
	my ($self, $line) = @_;
	open(my $lock, '>>', "$self->{dir}/lock") or die "$self->{dir}/lock: $!";
	flock($lock, LOCK_EX) or die;
	my $new = $self->{new};
	$self->{new} = {};
	$self->read_counts;
	$self->{counts}{$_} += $new->{$_} for keys %$new;
	spew("$self->{dir}/counts.new", join('', map { "$_ $self->{counts}{$_}\n" } sort keys %{ $self->{counts} }));
	rename("$self->{dir}/counts.new", "$self->{dir}/counts") or die "$self->{dir}/counts: $!";
	if ($line)
	{
		open(my $walks, '>>', "$self->{dir}/walks") or die "$self->{dir}/walks: $!";
		print $walks "$line\n";
		close $walks or die "$self->{dir}/walks: $!";
	}
	close $lock;
	$self->read_counts;
	delete $self->{lacking};
	return;
}

# ---------------------------------------------------------------------------
# Steering
# ---------------------------------------------------------------------------

# For each property, how many pairs and triples that have it are missing.  A pair or
# triple may have several properties.
sub missing
{
	my ($self, $which) = @_;
	my (%all, %missing);
	for my $kind ('pair', 'triple')
	{
		$self->{wanted}{$kind} //= [ wanted($kind, $self->names) ];
		for my $w (@{ $self->{wanted}{$kind} })
		{
			for my $key ($which->($kind, @$w))
			{
				$all{$key}++;
				$missing{$key}++ if !$self->{seen}{"$kind @$w"};
			}
		}
	}
	return { map { $_ => ($missing{$_} // 0) } keys %all };
}

# One of the keys of a hash of weights.
sub weighted
{
	my ($r, $weights) = @_;
	my $sum = 0;
	$sum += $_ for values %$weights;
	my $x = $r->real * $sum;
	for my $key (sort keys %$weights)
	{
		$x -= $weights->{$key};
		return $key if $x < 0;
	}
	return (sort keys %$weights)[0];
}

# Arguments of a walk's setup.  The mode and the number of clusters are mostly those of
# which most pairs are missing.  Most walks have an archive, because some events need
# one.  Loads are brief.
sub setup_arguments
{
	my ($self, $r) = @_;
	my $mode = weighted($r, $self->missing(sub { my ($kind, $mode) = @_; return $mode }));
	my $several = expand('[for several clusters]');
	my $n = weighted($r, $self->missing(
			sub { my ($kind, $mode, $role, $first, $next) = @_; return $role eq 'standby' || $several->{$first} || $several->{$next} ? 2 : 1 }));
	$n = 3 if $n == 2 && $r->real < 0.25;
	my $archive = $r->real < 0.8 ? 'on' : 'off';
	return "n=$n,mode=$mode,archive=$archive,brief=1";
}

# The pairs and triples that are missing, "kind mode role first next".
sub lacking
{
	my ($self) = @_;
	return $self->{lacking} //= $self->missing(sub { return join ' ', @_ });
}

# ---------------------------------------------------------------------------
# The table
# ---------------------------------------------------------------------------

sub share { my ($n, $of) = @_; return $of ? sprintf('%d of %d, %d %%', $n, $of, int(100 * $n / $of)) : '-'; }

sub prose { my ($text) = @_; local $Text::Wrap::columns = 101; return wrap('', '', $text) . "\n\n"; }

sub row { return '| ' . join(' | ', @_) . " |\n"; }

sub head { return row(@_) . row(map { '---' } @_); }

# How many pairs a rule takes away that no rule before it does, in all modes and roles.
sub taken
{
	my ($self, @rules) = @_;
	my %taken;
	for my $pair (all_pairs($self->names))
	{
		my ($r) = grep { defined } map { rule($_, @$pair) } @rules;
		$taken{$r}++ if $r;
	}
	return \%taken;
}

sub rules
{
	my ($self, $taken, @rules) = @_;
	my $text = head('first', 'next', 'only', 'why', 'pairs');
	for my $r (@rules)
	{
		my ($first, $next) = map { s/\[([^\]]+)\]|(\*)|(\w+)/$1 ? "*$1*" : $2 ? 'any' : "`$3`"/ger } @$r{qw(first next)};
		my $only = join ', ', map { "`$_`" } grep { defined } @$r{qw(mode role)};
		$text .= row($first, $next, $only, $r->{why}, $taken->{$r} // 0);
	}
	return $text;
}

sub table
{
	my ($self) = @_;
	my (%all, %seen, %ran, %missing);
	for my $kind ('pair', 'triple')
	{
		for my $w (wanted($kind, $self->names))
		{
			my ($mode, $role, $first, $next) = @$w;
			my $ran = $self->{seen}{"$kind @$w"} ? 1 : 0;
			for my $key ("$kind $mode $role", $kind, "$kind $mode $role $first")
			{
				$all{$key}++;
				$seen{$key} += $ran;
			}
			push @{ $missing{$kind} }, "$first, $next ($mode, $role)" if !$ran;
		}
	}
	my (%methods, %possible);
	$possible{"$_->[2] $_->[3]"} = 1 for wanted('pair', $self->names);
	for my $key (keys %{ $self->{counts} })
	{
		my ($kind, $mode, $role, $method, $first, $next) = split ' ', $key;
		$ran{$kind} += $self->{counts}{$key};
		$methods{$method}{"$first $next"} = 1 if $kind eq 'pair' && $possible{"$first $next"};
	}
	my @walks = map { [ split ' ' ] } split /\n/, slurp("$self->{dir}/walks");
	my $hours = 0;
	$hours += $_->[3] / 3600 for @walks;

	my $text = "# What has followed what\n\n"
	  . prose('`tests/torture/walk` walks at random over what may happen to one to three clusters, and a copy that is '
		  . 'started without the pool judges each start. This page says which combinations it has been through. '
		  . '`tests/torture/walk --table` makes it of what `tests/torture/walk --steer` has counted.')
	  . prose('A *pair* is two events that happened to a cluster one after the other. A *triple* is an event, a start '
		  . 'that was judged, and the next event. Each counts for the mode and role of the cluster when its '
		  . 'last event begins. Once WAL of a cluster was damaged on purpose, only pairs and triples with that damage count, since '
		  . 'the copy may then be wrong as well.')
	  . prose(sprintf('These are %d walks with %d events. %s of them failed. They took %.1f hours in all, but some '
			  . 'ran at the same time.', scalar @walks, sum(0, map { scalar @$_ - 4 } @walks),
			(grep { $_->[2] eq 'failed' } @walks) || 'None', $hours));
	$text .= head('mode', 'role', 'pairs', 'triples around a start');
	for my $mode (@MODES)
	{
		for my $role (@ROLES)
		{
			$text .= row("`$mode`", $role, map { share($seen{"$_ $mode $role"}, $all{"$_ $mode $role"}) } 'pair', 'triple');
		}
	}
	$text .= row('all', 'all', map { share($seen{$_}, $all{$_}) } 'pair', 'triple');
	$text .= row('ran in all', '', map { $ran{$_} // 0 } 'pair', 'triple');
	$text .= "\n" . head('WAL method', 'pairs, in any mode and role');
	$text .= row("`$_`", share(scalar keys %{ $methods{$_} }, scalar keys %possible)) for sort keys %methods;

	$text .= "\n" . prose('After each event: how many of the events that can be next were next.');
	my @columns = map { my $m = $_; map { "$m $_" } @ROLES } @MODES;
	$text .= head('event', map { s/ /, /r } @columns);
	for my $name ($self->names)
	{
		$text .= row("`$name`", map { my $k = "pair $_ $name"; $all{$k} ? "$seen{$k}/$all{$k}" : '' } @columns);
	}
	my @missing = @{ $missing{pair} // [] };
	$text .= "\n" . prose('Pairs that are missing: ' . (!@missing ? 'none.' : @missing > 40 ? @missing . '.' : join('; ', @missing) . '.'));
	my $taken = $self->taken(\@IMPOSSIBLE, \@BY_CHANCE);
	$text .= "## What cannot follow what\n\n"
	  . prose('If such a pair happens nevertheless, the walk fails. The last column counts the pairs that no line above it has. '
		  . 'Which events are in a set, such as *leaves it stopped*, is in `tests/torture/Walk/Coverage.pm`.')
	  . $self->rules($taken, @IMPOSSIBLE);
	$text .= "\n" . prose('What follows happens only if something else goes wrong. It belongs to no goal, and may happen.') . $self->rules($taken, @BY_CHANCE);
	return $text;
}

1;
