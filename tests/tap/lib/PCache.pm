
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache - clusters with a persistent cache, for the TAP tests

=head1 SYNOPSIS

  use PCache;

  my $node = new_node('main');            # initialized, with a pool, not started
  $node->start;
  load_data($node);
  my $before = warm_up($node);            # number of valid buffers
  my $offset = log_offset($node);
  $node->restart;
  is_warm($node, $offset, $before, 'after a fast stop');

=head1 DESCRIPTION

All that a test uses comes with "use PCache", which exports what these modules
export.  Each of them answers one question; the subs are described there.

  PCache::Node      how does a test get a cluster with a pool, and where is what?
  PCache::Tables    what do the tables of a test hold, and is it still that?
  PCache::Buffers   what is in shared buffers, and does it equal the files?
  PCache::Start     was a start warm or cold, and does the server say why?
  PCache::Crash     how is a server killed, and when is it back?
  PCache::Command   what does pg_pcache say of a cluster?
  PCache::Layout    where does a field lie in a pool, and how is it stored?
  PCache::PoolFile  what does a pool file hold, byte by byte?

Two more have to be asked for: PCache::Wal (clusters with wal_sync_method = pmem),
and PCache::PowerCut (what had reached the media when the power failed).

=cut

package PCache;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

use PCache::Buffers;
use PCache::Command;
use PCache::Crash qw(:DEFAULT wait_for_death);
use PCache::Layout;
use PCache::Node;
use PCache::PoolFile;
use PCache::Start;
use PCache::Tables;

our @EXPORT = (
	@PCache::Buffers::EXPORT,
	@PCache::Command::EXPORT,
	@PCache::Crash::EXPORT,
	@PCache::Layout::EXPORT,
	@PCache::Node::EXPORT,
	@PCache::PoolFile::EXPORT,
	@PCache::Start::EXPORT,
	@PCache::Tables::EXPORT);

# A mutant is caught by the first test that fails, and what comes after that takes time.
if ($ENV{PCACHE_UNTIL_FAILURE})
{
	no warnings 'redefine';
	my $ok = \&Test::Builder::ok;

	*Test::Builder::ok = sub {
		my ($builder, $passed, $name) = @_;
		local $Test::Builder::Level = $Test::Builder::Level + 1;

		return $ok->(@_) || $builder->BAIL_OUT("failed: $name");
	};
}

1;
