-- How a text reads, asked while it was at hand. Parts of older stores count as neither until their
-- files are read again.
ALTER TABLE parts ADD COLUMN summary BOOLEAN DEFAULT false;
ALTER TABLE parts ADD COLUMN markup BOOLEAN DEFAULT false;
