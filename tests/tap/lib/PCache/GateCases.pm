
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache::GateCases - superblocks with a right checksum and a wrong field

=cut

package PCache::GateCases;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use PCache;

our @EXPORT = qw(superblock_gate_cases);

my $plus_one = sub { $_[0] + 1 };

# Name, changes to the superblock, reason as "pg_pcache verify --json" gives
# it, and message, for a primary's pool of that many bytes.
sub superblock_gate_cases
{
	my ($file_size) = @_;

	return (
		# format
		[ 'format version', { format_version => 1 }, 'version',
			qr/^the pool has format version 1, this server has 2$/ ],
		[ 'major version', { pg_major => 17 }, 'version',
			qr/^the pool belongs to PostgreSQL 17 with catalog version \d+$/ ],
		[ 'pg_control version', { pg_control_version => 1700 }, 'version',
			qr/^the pool belongs to PostgreSQL 18 with catalog version \d+$/ ],
		[ 'catalog version', { catalog_version => 202401011 }, 'version',
			qr/^the pool belongs to PostgreSQL 18 with catalog version 202401011$/ ],
		[ 'byte order', { byte_order => 0x04030201 }, 'superblock',
			qr/^byte order does not match this machine$/ ],

		# geometry
		[ 'block size', { block_size => 4096 }, 'geometry', qr/4096/ ],
		[ 'segment size', { blocks_per_segment => 1024 }, 'geometry', qr/1024/ ],
		[ 'descriptor size', { descriptor_size => 128 }, 'geometry', qr/^the pool has / ],
		[ 'superblock size', { superblock_size => 8192 }, 'geometry', qr/^the pool has / ],
		[ 'capacity of nothing', { capacity => 0 }, 'geometry', qr/ bytes/ ],
		[ 'twice the capacity', { capacity => sub { 2 * $_[0] } }, 'geometry', qr/ bytes/ ],
		[ 'capacity near 2^64', { capacity => ~0 }, 'geometry', qr/ bytes/ ],
		[ 'capacity that overflows to the right one', { capacity => sub { $_[0] + 2**58 } },
			'geometry', qr/ bytes/ ],
		[ 'offset of the descriptors', { descriptors_offset => 4096 }, 'geometry', qr/ bytes/ ],
		[ 'offset of the blocks', { blocks_offset => sub { $_[0] + 8192 } }, 'geometry', qr/ bytes/ ],
		[ 'offset of the blocks beyond the file', { blocks_offset => sub { $_[0] + 2**40 } },
			'geometry', qr/ bytes/ ],
		[ 'size', { pool_size => sub { $_[0] - 8192 } }, 'geometry',
			qr/^the pool file has $file_size bytes, its superblock says @{[ $file_size - 8192 ]}/ ],
		[ 'more slots used than there are', { slots_used => sub { $_[0] + 100000 } },
			'geometry', qr/ bytes/ ],

		# identity
		[ 'system identifier', { system_identifier => $plus_one }, 'system_identifier',
			qr/^the pool belongs to the cluster with system identifier \d+$/ ],
		[ 'UUID', { pool_uuid => sub { $_[0] ^ ("\0" x 15 . "\1") } }, 'incarnation',
			qr/^the data directory was last used with another pool$/ ],
		[ 'incarnation', { incarnation => $plus_one }, 'incarnation',
			qr/^the pool was last used by incarnation [0-9a-f]{16} of the server, the data directory by [0-9a-f]{16}$/ ],
		[ 'incarnation of nobody', { incarnation => 0 }, 'incarnation',
			qr/^the pool was last used by incarnation 0{16} / ],

		# state
		[ 'state empty', { state => STATE_EMPTY }, 'new', qr/^the pool is empty$/ ],
		[ 'state attaching', { state => STATE_ATTACHING }, 'attaching',
			qr/^the last start did not reach a consistent state, or pg_pcache was interrupted/ ],
		[ 'state dirty', { state => STATE_DIRTY }, 'dirty',
			qr/^the server was not shut down cleanly$/ ],
		[ 'state of nothing', { state => 0 }, 'superblock',
			qr/^the state of the pool is 0, which is unknown$/ ],
		[ 'unknown state', { state => 99 }, 'superblock',
			qr/^the state of the pool is 99, which is unknown$/ ],
		[ 'control state', { control_state => 2 }, 'control_state',
			qr/^the cluster was started and stopped without the pool$/ ],
		[ 'timeline', { 'saved.timeline' => $plus_one }, 'timeline',
			qr/^the pool was saved on timeline 2, the cluster is on timeline 1$/ ],
		[ 'checkpoint', { 'saved.location' => sub { $_[0] - 8 } }, 'checkpoint',
			qr/^the pool was saved at checkpoint \S+, the last checkpoint of the cluster is at \S+$/ ],
		[ 'redo point', { 'saved.redo' => sub { $_[0] - 8 } }, 'checkpoint',
			qr/^the pool was saved at checkpoint / ],
		[ 'minimum recovery point', { min_recovery_point => 0x1000028 }, 'control_state',
			qr/^the cluster was started and stopped without the pool$/ ],
		[ 'timeline of the minimum recovery point', { min_recovery_point_timeline => 1 },
			'control_state', qr/^the cluster was started and stopped without the pool$/ ],
		[ 'data checksums', { data_checksum_version => sub { $_[0] ? 0 : 1 } }, 'data_checksums',
			qr/^data checksums were switched on or off$/ ],
		[ 'checksum of pg_control', { 'saved.control_crc' => sub { $_[0] ^ 1 } },
			'control_file', qr/^the control file was changed since the pool was saved$/ ]);
}

1;
