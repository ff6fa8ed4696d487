
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Shrink - the shortest list of events that still fails

=head1 SYNOPSIS

  my $events = shrink(\@events, $seconds, sub { my (@events) = @_; ... fails? });

=head1 DESCRIPTION

A walk ends at its first problem, so the list is the shortest failing prefix
already.  From its end to its beginning single events are left out, as long as
there is time; an event whose precondition does not hold any more is skipped by
the walk, so such a list is simply tried.  Kills hit where the machine is at
that moment: a list that did not fail is tried a second time.

=cut

package Walk::Shrink;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Time::HiRes qw(time);

our @EXPORT = qw(shrink);

sub shrink
{
	my ($events, $seconds, $fails) = @_;
	my @list = @$events;
	my $deadline = time + $seconds;
	my $tried = 0;

	# the last one shows the problem, the first one is the setup
	for (my $i = $#list - 1; $i >= 1 && time < $deadline; $i--)
	{
		my @shorter = @list;
		splice(@shorter, $i, 1);
		for (1, 2)
		{
			last if time >= $deadline;
			$tried++;
			if ($fails->(@shorter)) { @list = @shorter; last }
		}
	}
	return (\@list, $tried);
}

1;
