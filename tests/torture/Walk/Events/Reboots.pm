
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Events::Reboots - the host is restarted, with an image of the pool or without

=head1 DESCRIPTION

Part of the table of events; see Walk::Events.

=cut

package Walk::Events;

use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree make_path);

use Walk::Damage;
use Walk::Util;

our %EVENTS;

# Run pg_pcache on a cluster that is down.  Returns its exit status, 9 if it was killed.
sub tool
{
	my ($c, $env, $verb, @args) = @_;
	local %Programs::env = %$env;
	unlink "$c->{dir}/tool";
	return run_to("$c->{dir}/tool", "$c->{walk}{bin}/pg_pcache", $verb, '-D', $c->{data}, @args);
}

sub tool_said { my ($c) = @_; return slurp("$c->{dir}/tool") =~ s/\s+/ /gr; }

# The pool is saved, goes, and is loaded.  stale: nothing is saved, so that there is
# an image of an earlier reboot, if any.  How the next start ought to be says
# verify, and the start itself is compared with that of a copy.
$EVENTS{reboot} = {
	weight => 4,
	when => sub { return plain_pool(@_) && -e "$_[1]{pool}/pool"; },
	run => sub {
		my ($w, $c, $r) = @_;
		my $stale = $r->chance('stale', 0.2);
		my $kind = $r->pick('image', 'none', 'none', 'lz4', 'zstd');
		my $jobs = $r->number('jobs', 1, 4);
		my $kill = $r->pick('kill', 'no', 'no', 'no', 'load-created', 'load-marked', 'load-chunk', 'load-filled', 'load-done');
		my $image = "$c->{dir}/image";
		my $before = $c->verify->{rc};
		my $saved = 'stale';
		if (!$stale)
		{
			$saved = tool($c, {}, 'save', '--to', $image, '-j', $jobs, "--compress=$kind");
			$w->problem("$c->{name}: pg_pcache save: exit status $saved, but that of verify is $before: " . tool_said($c))
			  if ($before == 0 && $c->{clean} ? $saved != 0 : $saved == 1);
		}
		remove_tree($c->{pool});
		my $said = '';
		if ($kill ne 'no')
		{
			my $rc = tool($c, { PG_PCACHE_KILL_AT => $kill }, 'load', '--from', $image, '-j', $jobs);
			my $then = $c->verify->{rc};
			$said = ", load killed at $kill ($rc), verify $then";
			$w->problem("$c->{name}: warm in spite of a load killed at $kill") if $rc == 9 && $then == 0 && $kill !~ /^load-(?:named|done)$/;
		}
		my $loaded = tool($c, {}, 'load', '--from', $image, '-j', $jobs);
		my $text = tool_said($c);
		my $after = $c->verify->{rc};
		$w->problem("$c->{name}: pg_pcache load: exit status $loaded, but that of verify is $after: $text")
		  if ($loaded == 0) != ($after == 0);
		$w->problem("$c->{name}: saved, but not loaded: $text")
		  if $saved eq '0' && $before == 0 && $loaded != 0;
		$w->{totals}{"reboots, load $loaded"}++;
		return "save $saved$said, load $loaded";
	}
};

1;
